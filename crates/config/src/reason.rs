//! Why a setting, a line or a file was refused: one variant for each text. Texts are PgBouncer's
//! where it has one.

mod auth_file;
mod hba;
mod ldap;
mod url;

use core::net::IpAddr;

use thiserror::Error;

use crate::value::ValueError;

pub use self::auth_file::AuthFileError;
pub use self::hba::{HbaError, IdentError};
pub use self::ldap::LdapError;
pub use self::url::UrlError;

/// `why` is the system's text for the failure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    #[error("could not load file \"{file}\": {why}")]
    NotLoaded { file: String, why: String },
    #[error("could not open auth_file {file}: {why}")]
    AuthFileNotOpened { file: String, why: String },
    /// The name of the file, the value of `key`, precedes this text.
    #[error("could not open {key}: {why}")]
    NotOpened { key: &'static str, why: String },

    #[error("main section missing from config file")]
    NoMainSection,
    #[error("syntax error in configuration")]
    Syntax,
    #[error("syntax error in {0}")]
    SyntaxIn(&'static str),
    #[error("syntax error in {what}: {advice}")]
    SyntaxAdvised { what: &'static str, advice: &'static str },
    /// A `;` behind the value of a global key.
    #[error("{0}; a comment needs a line of its own")]
    CommentInValue(Box<Self>),
    #[error("the text behind ; belongs to the value: put comments on lines of their own")]
    CommentTaken,
    /// The value may be a secret, so it is not repeated.
    #[error(
        "${{…}} is taken as it is written, as PgBouncer does: Weir replaces variables in its own keys \
         and in a weir.toml"
    )]
    VariableTaken,
    #[error("the variable {0} is not set in Weir's environment; write $${{…}} for the text ${{…}}")]
    VariableNotSet(String),
    /// The text between the braces may be a part of a secret, so it is not repeated.
    #[error("a variable in it is not set in Weir's environment; write $${{…}} for the text ${{…}}")]
    VariableInSecretNotSet,
    /// The value of the variable is not repeated.
    #[error("\"{text}\" has an invalid value for parameter {key}")]
    ReplacedValue { key: &'static str, text: String },
    #[error("set again: the value of line {first} has no effect")]
    SetAgain { first: usize },
    /// A `;` behind the settings of an entry.
    #[error(
        "the text behind ; in the {0} is taken for a comment; put comments on lines of their own"
    )]
    CommentBehind(&'static str),
    #[error("unknown section: {0}")]
    UnknownSection(String),
    #[error("include nesting level too deep, maximum is {max}")]
    IncludedTooDeep { max: usize },
    #[error("too many files are included, maximum is {max}")]
    TooManyIncluded { max: u32 },
    #[error("value without section: {0}")]
    OutsideOfSections(String),
    #[error(
        "unrecognized connection parameter after a password (quote a password with blanks: \
         password='…')"
    )]
    BehindPassword,
    /// The text of the TOML parser.
    #[error("{0}")]
    Toml(String),
    #[error("a text needs quotes: {0} = \"…\"")]
    TomlWithoutQuotes(String),
    #[error("expected tables [{section}.NAME], not {found}")]
    ExpectedTables { section: String, found: String },
    #[error("expected a table [{section}.{name}], not {found}")]
    ExpectedTable { section: String, name: String, found: String },

    #[error("[pgbouncer] again: the keys set before it return to their defaults")]
    MainSectionAgain,
    /// The kind of entry.
    #[error("{0} defined again: the last definition counts")]
    DefinedAgain(&'static str),
    #[error("database name \"{0}\" is reserved")]
    ReservedName(String),
    #[error("database name is longer than {max} bytes")]
    LongName { max: usize },
    #[error("invalid number of ports: {0}")]
    NumberOfPorts(String),
    /// The name of the file precedes this text.
    #[error("could not read the password: {0}")]
    PasswordFile(String),
    #[error("it needs user: the password is that of one user")]
    PasswordWithoutUser,
    #[error("only one of password, password_file and password_command can have the password")]
    SeveralPasswords,
    #[error("no host, and unix_socket_dir is empty")]
    NoHost,
    #[error("unknown cluster \"{0}\": expected the name of an entry of [clusters]")]
    UnknownCluster(String),
    #[error("a database with cluster={0} cannot have a host: the cluster has the addresses")]
    HostAndCluster(String),
    #[error(
        "{key} has no effect beside cluster={cluster}: the nodes of the cluster have the addresses"
    )]
    BesideCluster { key: &'static str, cluster: String },
    #[error("cluster {0} has failover=own and no fence_command: without it, two primaries may run")]
    OwnWithoutFence(String),
    #[error("cluster {0} has no nodes: expected nodes = 'a=10.0.0.1, b=10.0.0.2', patroni or dns")]
    ClusterWithoutNodes(String),
    #[error("cluster {cluster} has {keys}: only one of these can say which nodes it has")]
    SeveralSourcesOfNodes { cluster: String, keys: String },
    #[error(
        "cluster {0} has failover=own and no nodes: Weir must know all standbys to promote one"
    )]
    OwnWithoutNodes(String),
    #[error("no effect: it needs patroni")]
    NeedsPatroni,
    #[error("no effect: Patroni carries out each switchover")]
    PatroniSwitches,
    #[error("{cert} and {key} must both be set, or none of them")]
    HalfAnIdentity { cert: &'static str, key: &'static str },
    #[error("etcd_user and etcd_password must both be set, or none of them")]
    HalfAnEtcdUser,
    #[error("expected a prefix of keys that begins with a slash and ends without one, as /weir")]
    NotAnEtcdPrefix,
    #[error("expected a name without a slash")]
    NotAMember,
    #[error("no effect: it needs etcd")]
    NeedsEtcd,
    #[error("it needs etcd: without it, several Weirs could have one address")]
    AddressWithoutEtcd,
    #[error(
        "{0} is also that of the cluster {1}: each cluster gives its address to a Weir by itself"
    )]
    AddressOfAnotherCluster(IpAddr, String),
    #[error("virtual_address and {0}: Weir has an address itself, or commands do it")]
    AddressAndCommands(&'static str),
    #[error("{0} must be set, too: one command brings the address, the other one removes it")]
    HalfOfTheCommands(&'static str),
    #[error("{0}: a name is written as in the catalogs, without schema, quotes and arguments")]
    NotACatalogName(String),
    #[error("no effect: the database has no cluster")]
    ReadsWithoutCluster,
    #[error("no effect: it needs pool_mode = auto")]
    ReadsWithoutAutoMode,
    #[error("no effect: it needs reads = standby")]
    ReadsOff,
    #[error("invalid value \"0\" for parameter {0}: expected seconds above 0")]
    ZeroTime(&'static str),
    #[error("id of a peer must be a number from 1 to {max}")]
    PeerId { max: u32 },
    #[error("host was not provided for peer {0}")]
    PeerWithoutHost(u32),
    #[error("[peers] has no effect: peer_id is not set")]
    PeersWithoutId,
    #[error("[peers] has no process besides {0}: cancel requests of other processes are refused")]
    NoOtherPeer(u32),
    #[error("only the first host has an effect: {0}")]
    PeerWithHosts(String),
    #[error("peer {0} has an address of this process: cancel requests for that peer are lost")]
    PeerIsThisProcess(u32),
    #[error("peer {peer} has the address of peer {other}: cancel requests of one of them are lost")]
    PeerAtSameAddress { peer: u32, other: u32 },

    #[error("unrecognized connection parameter: {0}")]
    UnknownConnectionParameter(String),
    #[error("unrecognized cluster parameter: {0}")]
    UnknownClusterParameter(String),
    #[error("unrecognized user parameter: {0}")]
    UnknownUserParameter(String),
    #[error("unknown parameter: pgbouncer/{0}")]
    UnknownParameter(String),
    #[error("{0} runs a program or reads a file: it is set in the configuration file only")]
    InFileOnly(String),
    #[error("invalid pool mode: {0}")]
    PoolMode(String),
    #[error("invalid port: {0}")]
    Port(String),
    #[error("invalid value \"{text}\" for parameter {key}: expected {expected}")]
    Value { key: &'static str, text: String, expected: ValueError },
    /// The value of a secret is not repeated.
    #[error("invalid value for parameter {key}: expected {expected}")]
    SecretValue { key: &'static str, expected: ValueError },
    #[error("invalid value \"{text}\" for parameter {key}: at most {max}")]
    TooLarge { key: &'static str, text: String, max: u32 },
    #[error(
        "min_spare_servers = {min} is above max_spare_servers = {max}: set it to at most {max}, or \
         max_spare_servers to at least {min} or to 0, which is no limit"
    )]
    SparesCrossed { min: u32, max: u32 },
    #[error("cannot use the reserved \"{0}\" database as an auth_dbname")]
    ReservedAuthDatabase(&'static str),

    #[error("could not parse hba config line: {0}")]
    Hba(HbaError),
    #[error("could not parse ident config line: {0}")]
    Ident(IdentError),
    #[error(transparent)]
    Ldap(LdapError),
    #[error(transparent)]
    Url(UrlError),
    #[error("{0}, the rest of the file is not read")]
    AuthFile(AuthFileError),
    #[error("user is not in UTF-8")]
    UserNotUtf8,
    #[error("expected NAME:MD5 or NAME:MD5:read-only, with the 32 hexadecimal digits of pg_md5")]
    PcpUser,
    #[error("pcp_file names no user, so nobody can log in")]
    NoPcpUser,
    #[error(
        "names a relation without its schema: a user who may set search_path for the database, or \
         create objects in it, can replace the relation"
    )]
    NeedsSearchPath,
}

impl Reason {
    /// Is it about the environment or the files of the service, and not about the configuration?
    pub(crate) fn is_of_service(&self) -> bool {
        matches!(
            self,
            Self::VariableNotSet(_)
                | Self::VariableInSecretNotSet
                | Self::ReplacedValue { .. }
                | Self::PasswordFile(_)
        )
    }
}
