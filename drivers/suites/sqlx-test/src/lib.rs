//! The part of an unpublished crate of sqlx's workspace that sqlx's tests need: connections, and
//! macros that make a test of a type from SQL literals and their values. It was written anew from
//! its uses in the tests. The tests themselves are sqlx's own.

use sqlx::{Connection, Database, Pool};

// The macros find this crate from any caller.
pub use paste;

/// There is no log and no file of variables to set up here.
pub fn setup_if_needed() {}

fn url() -> anyhow::Result<String> {
    Ok(std::env::var("DATABASE_URL")?)
}

pub async fn new<D: Database>() -> anyhow::Result<D::Connection> {
    Ok(D::Connection::connect(&url()?).await?)
}

pub async fn pool<D: Database>() -> anyhow::Result<Pool<D>> {
    Ok(sqlx::pool::PoolOptions::new().min_connections(0).max_connections(5).connect(&url()?).await?)
}

/// Literals are read as text and in binary, their values sent, and compared by the server. Arrays of
/// geometric types are not read as text, where sqlx does not know what parts boxes.
#[macro_export]
macro_rules! test_type {
    ($name:ident<$ty:ty>($db:ident, $($literal:literal @= $value:expr),+ $(,)?)) => {
        $crate::test_prepared_type!($name<$ty>($db, $($literal @= $value),+));
    };
    ($name:ident<$ty:ty>($($cases:tt)+)) => {
        $crate::test_unprepared_type!($name<$ty>($($cases)+));
        $crate::test_prepared_type!($name<$ty>($($cases)+));
    };
    ($name:ident($($cases:tt)+)) => { $crate::test_type!($name<$name>($($cases)+)); };
}

/// Literals are read as text and in binary.
#[macro_export]
macro_rules! test_decode_type {
    ($name:ident<$ty:ty>($($cases:tt)+)) => {
        $crate::test_unprepared_type!($name<$ty>($($cases)+));
        $crate::read_type!(read_prepared, query, $name<$ty>($($cases)+));
    };
}

/// Literals are read as text, the form that rows of a simple query have.
#[macro_export]
macro_rules! test_unprepared_type {
    ($name:ident<$ty:ty>($db:ident, $($literal:literal == $value:expr),+ $(,)?)) => {
        $crate::read_type!(read_unprepared, raw_sql, $name<$ty>($db, $($literal == $value),+));
    };
    ($name:ident<$ty:ty>($db:ident, $($literal:literal ~= $value:expr),+ $(,)?)) => {
        $crate::read_type!(read_unprepared, raw_sql, $name<$ty>($db, $($literal == $value),+));
    };
    ($name:ident<$ty:ty>($db:ident, $sql:literal, $($literal:literal == $value:expr),+ $(,)?)) => {
        $crate::read_type!(read_unprepared, raw_sql, $name<$ty>($db, $($literal == $value),+));
    };
}

/// Values are sent and come back in binary, and the server compares them with the literals: by
/// equality (`==`), by sameness of geometric types (`~=`), or not at all (`@=`, arrays of these).
/// A test may bring a query of its own, which tells by 1 whether $1 is the literal, and gives the
/// literal and $2.
#[macro_export]
macro_rules! test_prepared_type {
    ($name:ident<$ty:ty>($db:ident, $($literal:literal == $value:expr),+ $(,)?)) => {
        $crate::send_type!($name<$ty>($db, "SELECT ({0} IS NOT DISTINCT FROM $1)::int4, {0}, $2",
                                      $($literal, $value),+));
    };
    ($name:ident<$ty:ty>($db:ident, $($literal:literal ~= $value:expr),+ $(,)?)) => {
        $crate::send_type!($name<$ty>($db, "SELECT ({0} ~= $1)::int4, {0}, $2",
                                      $($literal, $value),+));
    };
    ($name:ident<$ty:ty>($db:ident, $($literal:literal @= $value:expr),+ $(,)?)) => {
        $crate::send_type!($name<$ty>($db, "SELECT ($1 IS NOT NULL)::int4, {0}, $2",
                                      $($literal, $value),+));
    };
    ($name:ident<$ty:ty>($db:ident, $sql:literal, $($literal:literal == $value:expr),+ $(,)?)) => {
        $crate::send_type!($name<$ty>($db, $sql, $($literal, $value),+));
    };
    ($name:ident($($cases:tt)+)) => { $crate::test_prepared_type!($name<$name>($($cases)+)); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! read_type {
    ($prefix:ident, $run:ident,
     $name:ident<$ty:ty>($db:ident, $($literal:literal == $value:expr),+ $(,)?)) => {
        $crate::paste::item! {
            #[sqlx_macros::test]
            async fn [<$prefix _ $name>]() -> anyhow::Result<()> {
                let mut conn = $crate::new::<$db>().await?;
                $({
                    let sql = sqlx::AssertSqlSafe(format!("SELECT {}", $literal));
                    let row = sqlx::Executor::fetch_one(&mut conn, sqlx::$run(sql)).await?;
                    let read: $ty = sqlx::Row::try_get(&row, 0)?;
                    assert!($value == read, "{} is read as {read:?}", $literal);
                })+
                Ok(())
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! send_type {
    ($name:ident<$ty:ty>($db:ident, $sql:literal, $($literal:literal, $value:expr),+)) => {
        $crate::paste::item! {
            #[sqlx_macros::test]
            async fn [<sent_prepared_ $name>]() -> anyhow::Result<()> {
                let mut conn = $crate::new::<$db>().await?;
                $({
                    let sql = sqlx::AssertSqlSafe(format!($sql, $literal));
                    let query = sqlx::query(sql).bind($value).bind($value);
                    let row = sqlx::Executor::fetch_one(&mut conn, query).await?;
                    let same: i32 = sqlx::Row::try_get(&row, 0)?;
                    let given: $ty = sqlx::Row::try_get(&row, 1)?;
                    let back: $ty = sqlx::Row::try_get(&row, 2)?;
                    assert!($value == given, "{} is read as {given:?}", $literal);
                    assert!($value == back, "{} comes back as {back:?}", $literal);
                    assert_eq!(same, 1, "the server does not take {back:?} for {}", $literal);
                })+
                Ok(())
            }
        }
    };
}
