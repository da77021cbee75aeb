//! Passwords for the duration of a demo.

use std::{fmt::Write as _, fs::File, io::Read as _};

use anyhow::Context as _;

/// Returns 128 bits from the kernel, as 32 hexadecimal digits. They are safe in a URL, in SQL and
/// in a file.
pub(super) fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}
