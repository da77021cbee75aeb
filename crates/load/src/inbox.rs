//! Assembles received bytes into whole messages.

use wire::{HEADER_LEN, Header};

/// The beginning of an incomplete message.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    /// Passes the code and the body of each complete message to `each`.
    ///
    /// # Errors
    /// The first error of `each`, and an invalid header.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(u8, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.0.is_empty() {
            let used = split(bytes, &mut each)?;
            self.0.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.0.extend_from_slice(bytes);
        let used = split(&self.0, &mut each)?;
        self.0.drain(..used);
        if self.0.is_empty() {
            // Few of thousands of clients have an incomplete message, so each has its own memory.
            self.0 = Vec::new();
        }
        Ok(())
    }
}

fn split(
    bytes: &[u8],
    each: &mut impl FnMut(u8, &[u8]) -> Result<(), String>,
) -> Result<usize, String> {
    let mut used = 0;
    loop {
        let rest = &bytes[used..];
        let header = Header::parse(rest).map_err(|error| error.to_string())?;
        let Some(header) = header.filter(|header| header.total <= rest.len()) else {
            return Ok(used);
        };
        each(header.code, &rest[HEADER_LEN..header.total])?;
        used += header.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_wherever_they_are_cut() {
        let mut stream = Vec::new();
        wire::frontend::query(&mut stream, b"select 1");
        wire::frontend::sync(&mut stream);
        for cut in 0..=stream.len() {
            let (mut inbox, mut seen) = (Inbox::default(), Vec::new());
            for part in [&stream[..cut], &stream[cut..]] {
                let each = |code, body: &[u8]| {
                    seen.push((code, body.len()));
                    Ok(())
                };
                inbox.take(part, each).unwrap();
            }
            assert_eq!(seen, [(b'Q', 9), (b'S', 0)], "cut at {cut}");
        }
        assert!(Inbox::default().take(b"Z\0\0\0\x03", |_, _| Ok(())).is_err());
    }
}
