//! One session of the canned PostgreSQL, as a state machine that turns bytes into bytes. It holds
//! no data and plans nothing. It answers the queries of the load generator and of poolers with the
//! messages that PostgreSQL 15 would send.

mod report;
mod statement;

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use crate::bulk::Rows;
use crate::frame::{Fields, Frame, put};
use crate::run::Setting;
pub(crate) use statement::{ABALANCE_ROW, BULK_ROW};
use statement::{Kind, Portal, Statements};

/// The approximate size of the pieces of a large result.
const BULK_CHUNK_BYTES: usize = 64 * 1024;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The parameters that PostgreSQL 15 reports at login, except `application_name`, which the client
/// sets.
const PARAMETERS: [(&str, &str); 12] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "off"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.18 (Debian 15.18-0+deb12u1)"),
    ("session_authorization", "bench"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "Etc/UTC"),
];

/// The future of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stay,
    Close,
}

/// One connection to the canned PostgreSQL.
#[derive(Debug)]
pub(crate) struct Session {
    process_id: u32,
    started: bool,
    /// The transaction status in ReadyForQuery: `I`, `T` or `E`.
    status: u8,
    /// True after an error in the extended protocol: all messages up to Sync are ignored.
    skipping: bool,
    statements: Statements,
    portal: Option<Portal>,
    /// The settings of the session that PostgreSQL does not report. Every row of a select shows
    /// their values.
    settings: BTreeMap<Vec<u8>, Vec<u8>>,
    bulk: Option<Bulk>,
    /// The last reported state, if the session reports its state.
    reported: Option<Vec<u8>>,
}

/// A large result that is being sent.
#[derive(Debug)]
struct Bulk {
    rows: Rows,
    tag: String,
}

impl Session {
    pub(crate) fn new(process_id: u32) -> Self {
        Self {
            process_id,
            started: false,
            status: b'I',
            skipping: false,
            statements: Statements::default(),
            portal: None,
            settings: BTreeMap::new(),
            bulk: None,
            reported: None,
        }
    }

    /// Handles the whole messages at the beginning of `bytes`, appends the answers to `out` and
    /// returns how many bytes were used. While a large result is being sent, no message is handled.
    pub(crate) fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Verdict)> {
        let mut used = 0;
        while self.bulk.is_none() {
            let rest = &bytes[used..];
            if self.started {
                let Some((frame, length)) = Frame::split(rest)? else { break };
                used += length;
                if self.handle_message(frame, out)? == Verdict::Close {
                    return Ok((used, Verdict::Close));
                }
            } else {
                let Some((length, packet)) = rest.split_first_chunk() else { break };
                let length = u32::from_be_bytes(*length) as usize;
                ensure!((8..=10_000).contains(&length), "startup packet of {length} bytes");
                let Some(packet) = packet.get(..length - 4) else { break };
                used += length;
                if self.handle_startup(packet, out)? == Verdict::Close {
                    return Ok((used, Verdict::Close));
                }
            }
        }
        Ok((used, Verdict::Stay))
    }

    /// Called when everything in `out` has been sent: appends the next piece of a large result.
    pub(crate) fn refill(&mut self, out: &mut Vec<u8>) {
        if let Some(bulk) = &mut self.bulk {
            bulk.rows.produce(out, BULK_CHUNK_BYTES);
            if bulk.rows.is_done() {
                put(out, b'C', &[bulk.tag.as_bytes(), b"\0"]);
                self.bulk = None;
                self.ready(out);
            }
        }
    }

    fn handle_startup(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<Verdict> {
        let mut fields = Fields(packet);
        match fields.u32()? {
            SSL_REQUEST | GSSENC_REQUEST => out.push(b'N'),
            CANCEL_REQUEST => return Ok(Verdict::Close),
            version => {
                ensure!(version >> 16 == 3, "startup with protocol version {version:#x}");
                let mut application_name: &[u8] = b"";
                let (mut asks, mut can) = (false, false);
                loop {
                    let name = fields.string()?;
                    if name.is_empty() {
                        break;
                    }
                    let value = fields.string()?;
                    if name == b"application_name" {
                        application_name = value;
                    }
                    asks |= name == report::ASK;
                    can |= name == b"database" && value == Setting::REPORTING.as_bytes();
                }
                self.reported = (asks && can).then(Vec::new);
                self.welcome(application_name, out);
            }
        }
        Ok(Verdict::Stay)
    }

    fn welcome(&mut self, application_name: &[u8], out: &mut Vec<u8>) {
        self.started = true;
        put(out, b'R', &[&0u32.to_be_bytes()]);
        put(out, b'S', &[b"application_name\0", application_name, b"\0"]);
        for (name, value) in PARAMETERS {
            put(out, b'S', &[name.as_bytes(), b"\0", value.as_bytes(), b"\0"]);
        }
        put(out, b'K', &[&self.process_id.to_be_bytes(), &self.process_id.to_be_bytes()]);
        self.ready(out);
    }

    fn handle_message(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<Verdict> {
        match frame.tag {
            b'Q' => {
                self.simple_query(Fields(frame.body).string()?, out);
                return Ok(Verdict::Stay);
            }
            b'S' => {
                self.skipping = false;
                self.portal = None;
                self.ready(out);
                return Ok(Verdict::Stay);
            }
            b'X' => return Ok(Verdict::Close),
            // Outside of a COPY, PostgreSQL ignores the messages of a COPY.
            b'c' | b'd' | b'f' => return Ok(Verdict::Stay),
            _ if self.skipping => return Ok(Verdict::Stay),
            _ => {}
        }
        match frame.tag {
            b'H' => {}
            b'F' => {
                self.error(out, "42883", "function does not exist");
                self.skipping = false;
                self.ready(out);
            }
            b'P' => self.parse(frame.body, out)?,
            b'B' => self.bind(frame.body, out)?,
            b'D' => self.describe(frame.body, out)?,
            b'E' => self.execute(out),
            b'C' => {
                let mut fields = Fields(frame.body);
                if fields.bytes(1)? == b"S" {
                    self.statements.remove(fields.string()?);
                }
                put(out, b'3', &[]);
            }
            other => bail!("message {:?} is not one the canned server knows", other as char),
        }
        Ok(Verdict::Stay)
    }

    fn simple_query(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let text = report::without_mark(text);
        self.statements.remove(b"");
        let mut any = false;
        for text in statement::split(text) {
            any = true;
            match Kind::of(text) {
                Kind::Bulk { row_bytes, total_bytes } => {
                    put(out, b'T', &[BULK_ROW]);
                    self.start_bulk(row_bytes, total_bytes);
                    return;
                }
                Kind::Failure => {
                    self.run(&Kind::Failure, out);
                    self.skipping = false;
                    break;
                }
                kind => {
                    if let Some(columns) = kind.row_description() {
                        put(out, b'T', &[&columns]);
                    }
                    self.run(&kind, out);
                }
            }
        }
        if !any {
            put(out, b'I', &[]);
        }
        self.ready(out);
    }

    /// Appends the part of a statement's answer that follows the row description.
    fn run(&mut self, kind: &Kind<'_>, out: &mut Vec<u8>) {
        match kind {
            Kind::Select { number } => {
                let values = self.settings.values().flat_map(|value| [b" ", &**value]);
                let text = [&[*number][..], &values.collect::<Vec<_>>()].concat().concat();
                put_row(out, &[&text]);
                put(out, b'C', &[b"SELECT 1\0"]);
            }
            Kind::Set { name, value } => {
                put(out, b'C', &[b"SET\0"]);
                if let Some(reported) = statement::reported(name) {
                    put(out, b'S', &[reported.as_bytes(), b"\0", value, b"\0"]);
                } else {
                    self.settings.insert(name.to_vec(), value.to_vec());
                }
            }
            Kind::Reset { name } => {
                self.settings.remove(*name);
                put(out, b'C', &[b"RESET\0"]);
            }
            Kind::SetConfig { calls } => {
                let settings = statement::calls(calls);
                put_row(out, &vec![&b"f"[..]; settings.len()]);
                let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
                self.settings.extend(settings.into_iter().map(owned));
                put(out, b'C', &[b"SELECT 1\0"]);
            }
            Kind::Failure => self.error(out, "26000", "what it names does not exist"),
            Kind::Probe => {
                self.settings.iter().for_each(|(name, value)| put_row(out, &[b"s", name, value]));
                let tag = format!("SELECT {}\0", self.settings.len());
                put(out, b'C', &[tag.as_bytes()]);
            }
            Kind::Plain { tag, status } => {
                self.status = status.unwrap_or(self.status);
                if *tag == "DISCARD ALL" {
                    self.statements.clear();
                    self.settings.clear();
                }
                put(out, b'C', &[tag.as_bytes(), b"\0"]);
            }
            Kind::Bulk { .. } => {
                self.error(out, "0A000", "the large result is for the simple protocol only");
            }
        }
    }

    fn start_bulk(&mut self, row_bytes: usize, total_bytes: u64) {
        let tag = format!("SELECT {}", Rows::count(row_bytes, total_bytes));
        self.bulk = Some(Bulk { rows: Rows::new(row_bytes, total_bytes), tag });
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut fields = Fields(body);
        let (name, text) = (fields.string()?, fields.string()?);
        if self.statements.insert(name, text) {
            put(out, b'1', &[]);
        } else {
            self.error(out, "42P05", "prepared statement already exists");
        }
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut fields = Fields(body);
        let (_portal, name) = (fields.string()?, fields.string()?);
        let Some(text) = self.statements.text(name) else {
            self.error(out, "26000", "prepared statement does not exist");
            return Ok(());
        };
        let formats = fields.u16()?;
        fields.bytes(usize::from(formats) * 2)?;
        let argument: &[u8] = match fields.u16()? {
            0 => b"",
            _ => {
                let length = fields.u32()? as usize;
                fields.bytes(length)?
            }
        };
        self.portal = Some(Portal::new(text, argument));
        put(out, b'2', &[]);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut fields = Fields(body);
        let of_statement = fields.bytes(1)? == b"S";
        let text = if of_statement {
            self.statements.text(fields.string()?)
        } else {
            self.portal.as_ref().map(Portal::text)
        };
        let Some(text) = text else {
            self.error(out, "26000", "there is nothing of that name to describe");
            return Ok(());
        };
        if of_statement {
            let parameters: &[&[u8]] = if statement::has_parameter(text) {
                &[&[0, 1], &23u32.to_be_bytes()]
            } else {
                &[&[0, 0]]
            };
            put(out, b't', parameters);
        }
        match Kind::of(text).row_description() {
            Some(columns) => put(out, b'T', &[&columns]),
            None => put(out, b'n', &[]),
        }
        Ok(())
    }

    fn execute(&mut self, out: &mut Vec<u8>) {
        let Some(portal) = self.portal.take() else {
            return self.error(out, "34000", "portal does not exist");
        };
        self.run(&portal.kind(), out);
        self.portal = Some(portal);
    }

    fn error(&mut self, out: &mut Vec<u8>, code: &str, message: &str) {
        put(
            out,
            b'E',
            &[b"SERROR\0VERROR\0C", code.as_bytes(), b"\0M", message.as_bytes(), b"\0\0"],
        );
        self.skipping = true;
        if self.status == b'T' {
            self.status = b'E';
        }
    }

    fn ready(&mut self, out: &mut Vec<u8>) {
        self.report(out);
        put(out, b'Z', &[&[self.status]]);
    }
}

/// Appends a DataRow with these values.
fn put_row(out: &mut Vec<u8>, columns: &[&[u8]]) {
    let mut body = (columns.len() as u16).to_be_bytes().to_vec();
    for column in columns {
        body.extend_from_slice(&(column.len() as u32).to_be_bytes());
        body.extend_from_slice(column);
    }
    put(out, b'D', &[&body]);
}

#[cfg(test)]
mod tests;
