//! The SQLSTATEs that Weir sends or looks for, by their names in PostgreSQL's appendix A.

/// PgBouncer's code for nearly everything it says itself.
pub const PROTOCOL_VIOLATION: &str = "08P01";
pub const CONNECTION_FAILURE: &str = "08006";
pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
pub const INVALID_PARAMETER_VALUE: &str = "22023";
pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
pub const TRANSACTION_TIMEOUT: &str = "25P04";
pub const INVALID_STATEMENT_NAME: &str = "26000";
pub const INVALID_AUTHORIZATION: &str = "28000";
pub const INVALID_PASSWORD: &str = "28P01";
pub const INVALID_CATALOG_NAME: &str = "3D000";
pub const INVALID_NAME: &str = "42602";
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub const SERIALIZATION_FAILURE: &str = "40001";
pub const TOO_MANY_CONNECTIONS: &str = "53300";
pub const NOT_IN_PREREQUISITE_STATE: &str = "55000";
pub const QUERY_CANCELED: &str = "57014";
pub const ADMIN_SHUTDOWN: &str = "57P01";
pub const CRASH_SHUTDOWN: &str = "57P02";
pub const CANNOT_CONNECT_NOW: &str = "57P03";
pub const DATABASE_DROPPED: &str = "57P04";
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
pub const CONFIG_FILE_ERROR: &str = "F0000";
