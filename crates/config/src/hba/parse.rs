//! The lines of `auth_hba_file`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::words::{Word, Words};
use super::{Address, CertName, Connection, Hba, IdentMaps, Method, Names, Rule};
use crate::error::Mistake;
use crate::ldap::LdapOptions;
use crate::reason::{HbaError, Reason};

/// Maximal depth of files that name files by `@`.
const DEPTH_MAX: u32 = 10;

/// The kind of names in a list. Keywords of one kind are ordinary names in the other: a user may be
/// called `replication`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Databases,
    Users,
}

/// Returns the content of a file that is named in another one.
type ReadFile<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Hba {
    /// Reads the content of `file`; the warnings name invalid lines. `read` gets the names of
    /// further files after `@`, relative to the folder of `file`.
    pub fn parse(
        content: &str,
        file: &Arc<str>,
        maps: &IdentMaps,
        read: ReadFile<'_>,
    ) -> (Self, Vec<Mistake>) {
        let mut hba = Self::default();
        let mut warnings = Vec::new();
        for (at, line) in content.lines().enumerate() {
            let line_number = at + 1;
            if let Some(len) = name_len_max(line) {
                hba.name_len_max = Some(len);
                continue;
            }
            if let Some((name, oid)) = role(line) {
                hba.roles.insert(name, oid);
                continue;
            }
            let read = match reservation(line) {
                Ok(Some((databases, users))) => {
                    for database in databases.names {
                        hba.reserved.entry(database).or_default().extend(users.names.clone());
                    }
                    Ok(None)
                }
                Ok(None) => rule(line, line_number, maps, read),
                Err(why) => Err(why),
            };
            match read {
                Ok(rule) => hba.rules.extend(rule),
                Err(why) => {
                    warnings.push(Mistake::in_file(file, line_number, Reason::Hba(why)));
                }
            }
        }
        (hba, warnings)
    }
}

/// Reads a line `name_len_max NUMBER`.
fn name_len_max(line: &str) -> Option<usize> {
    line.strip_prefix("name_len_max ")?.parse().ok()
}

/// Reads a line `role NAME OID`.
fn role(line: &str) -> Option<(String, u32)> {
    let mut words = Words::new(line.strip_prefix("role ")?);
    let mut next = || match words.next() {
        Ok(Some(Word::Bare(word) | Word::Quoted(word))) => Some(word),
        Ok(Some(Word::Comma) | None) | Err(_) => None,
    };
    Some((next()?, next()?.parse().ok()?))
}

/// Reads a line `only DATABASES USERS`; None: it is another line. An empty name is that of no user.
fn reservation(line: &str) -> Result<Option<(Names, Names)>, HbaError> {
    let mut words = Words::new(line);
    match words.next() {
        Ok(Some(Word::Bare(word))) if word == "only" => {}
        _ => return Ok(None),
    }
    let (mut databases, mut users) = (Names::default(), Names::default());
    names(&mut words, Of::Databases, &mut databases, &|_| None, 0)?;
    names(&mut words, Of::Users, &mut users, &|_| None, 0)?;
    let has_keyword = databases.all || databases.same_user || databases.replication || users.all;
    match next(&mut words)? {
        None if !has_keyword => Ok(Some((databases, users))),
        _ => Err(HbaError::Parameters),
    }
}

fn rule(
    line: &str,
    number: usize,
    maps: &IdentMaps,
    read: ReadFile<'_>,
) -> Result<Option<Rule>, HbaError> {
    let mut words = Words::new(line);
    let connection = match next(&mut words)? {
        None => return Ok(None),
        Some(Word::Bare(word)) => match word.as_str() {
            "local" => Connection::Local,
            "host" => Connection::Host,
            "hostssl" => Connection::HostSsl,
            "hostnossl" => Connection::HostNoSsl,
            _ => return Err(HbaError::Type(word)),
        },
        Some(Word::Quoted(_) | Word::Comma) => return Err(HbaError::NoType),
    };
    let mut databases = Names::default();
    names(&mut words, Of::Databases, &mut databases, read, 0)?;
    let mut users = Names::default();
    names(&mut words, Of::Users, &mut users, read, 0)?;
    let address = match connection {
        Connection::Local => Address::All,
        Connection::Host | Connection::HostSsl | Connection::HostNoSsl => address(&mut words)?,
    };
    let mut method = method(&mut words)?;
    if let Method::Ldap(_) = method {
        let method = Method::Ldap(Arc::new(LdapOptions::parse(words.rest())?));
        let map = None;
        return Ok(Some(Rule { line: number, connection, databases, users, address, method, map }));
    }
    if let Method::Pam(service) = &mut method
        && let Some(named) = pam_service(&mut words)?
    {
        *service = named.into();
    }
    let map = map(&mut words, maps)?;
    match next(&mut words)? {
        None => Ok(Some(Rule { line: number, connection, databases, users, address, method, map })),
        Some(_) => Err(HbaError::Parameters),
    }
}

fn next(words: &mut Words<'_>) -> Result<Option<Word>, HbaError> {
    words.next().map_err(|_| HbaError::Unclosed)
}

fn bare(words: &mut Words<'_>, what: &'static str) -> Result<String, HbaError> {
    match next(words)? {
        Some(Word::Bare(word)) => Ok(word),
        Some(Word::Quoted(_) | Word::Comma) | None => Err(HbaError::Missing(what)),
    }
}

/// Reads a list of names with commas between them.
fn names(
    words: &mut Words<'_>,
    of: Of,
    into: &mut Names,
    read: ReadFile<'_>,
    depth: u32,
) -> Result<(), HbaError> {
    loop {
        match next(words)? {
            Some(Word::Quoted(name)) => drop(into.names.insert(name)),
            Some(Word::Bare(word)) => match word.as_str() {
                "all" => into.all = true,
                "sameuser" if of == Of::Databases => into.same_user = true,
                "replication" if of == Of::Databases => into.replication = true,
                "samerole" | "samegroup" if of == Of::Databases => {
                    return Err(HbaError::Keyword(word));
                }
                _ if word.starts_with('+') => return Err(HbaError::Groups),
                _ => match word.strip_prefix('@') {
                    Some(file) => names_of_file(file, of, into, read, depth)?,
                    None => drop(into.names.insert(word)),
                },
            },
            Some(Word::Comma) | None => return Err(HbaError::NoName),
        }
        match words.peek() {
            Ok(Some(Word::Comma)) => drop(next(words)?),
            _ => return Ok(()),
        }
    }
}

fn names_of_file(
    file: &str,
    of: Of,
    into: &mut Names,
    read: ReadFile<'_>,
    depth: u32,
) -> Result<(), HbaError> {
    if depth >= DEPTH_MAX {
        return Err(HbaError::TooDeep(file.to_owned()));
    }
    let content = read(file).ok_or_else(|| HbaError::Unreadable(file.to_owned()))?;
    for line in content.lines() {
        let mut words = Words::new(line);
        while words.peek().map_err(|_| HbaError::Unclosed)?.is_some() {
            names(&mut words, of, into, read, depth + 1)?;
        }
    }
    Ok(())
}

fn address(words: &mut Words<'_>) -> Result<Address, HbaError> {
    let text = bare(words, "address")?;
    if text == "all" {
        return Ok(Address::All);
    }
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text.as_str(), None),
    };
    let address: IpAddr = address.parse().map_err(|_| HbaError::Address(text.clone()))?;
    let mask = match bits {
        Some(bits) => mask_of_bits(address, bits).ok_or(HbaError::MaskBits)?,
        None => {
            let text = bare(words, "mask")?;
            let mask: Option<IpAddr> = text.parse().ok();
            let mask = mask.filter(|mask| mask.is_ipv4() == address.is_ipv4());
            mask.ok_or(HbaError::Mask(text))?
        }
    };
    let net = Address::Net(address, mask);
    // No address can match, and a reject rule would silently have no effect.
    if !net.contains(address) {
        return Err(HbaError::Mismatch { address, mask });
    }
    Ok(net)
}

fn mask_of_bits(address: IpAddr, bits: &str) -> Option<IpAddr> {
    let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u32 = bits.parse().ok().filter(|_| digits)?;
    Some(match address {
        IpAddr::V4(_) => {
            let hole = 32_u32.checked_sub(bits)?;
            IpAddr::V4(Ipv4Addr::from_bits(u32::MAX.checked_shl(hole).unwrap_or(0)))
        }
        IpAddr::V6(_) => {
            let hole = 128_u32.checked_sub(bits)?;
            IpAddr::V6(Ipv6Addr::from_bits(u128::MAX.checked_shl(hole).unwrap_or(0)))
        }
    })
}

fn method(words: &mut Words<'_>) -> Result<Method, HbaError> {
    let word = bare(words, "method")?;
    Ok(match word.as_str() {
        "trust" => Method::Trust,
        "reject" => match words.peek() {
            Ok(Some(Word::Quoted(text))) => {
                next(words)?;
                Method::Refuse(text.into())
            }
            _ => Method::Reject,
        },
        "md5" => Method::Md5,
        "password" => Method::Password,
        "scram-sha-256" => Method::ScramSha256,
        "peer" => Method::Peer,
        "cert" => match words.peek() {
            Ok(Some(Word::Bare(option))) if option == "clientname=CN" => {
                next(words)?;
                Method::Cert(CertName::Common)
            }
            _ => Method::Cert(CertName::Any),
        },
        "pam" => Method::Pam(super::PAM_SERVICE.into()),
        // Its options are read from the rest of the line.
        "ldap" => Method::Ldap(Arc::default()),
        _ => return Err(HbaError::Method(word)),
    })
}

/// Reads `pamservice="NAME"`, if that comes next.
fn pam_service(words: &mut Words<'_>) -> Result<Option<String>, HbaError> {
    match words.peek() {
        Ok(Some(Word::Bare(word))) if word == "pamservice=" => {}
        _ => return Ok(None),
    }
    next(words)?;
    match next(words)? {
        Some(Word::Quoted(name)) if !name.is_empty() => Ok(Some(name)),
        _ => Err(HbaError::Parameters),
    }
}

fn map(words: &mut Words<'_>, maps: &IdentMaps) -> Result<Option<Arc<super::IdentMap>>, HbaError> {
    let Some(word) = next(words)? else { return Ok(None) };
    let Word::Bare(word) = word else { return Err(HbaError::Parameters) };
    let name = word.strip_prefix("map=").ok_or_else(|| HbaError::MapForm(word.clone()))?;
    let map = maps.get(name);
    map.map(Some).ok_or_else(|| HbaError::NoMap(name.to_owned()))
}
