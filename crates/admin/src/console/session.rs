//! One connection of the console: its messages and their replies. [`crate::Control`] carries out
//! the commands.

use config::Global;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::{backend, sqlstate};

use super::extended::Prepared;
use super::{Console, Signals};
use crate::command::{self, Command, Invalid};
use crate::control::{NotReloaded, Order, Shutdown};
use crate::message::{self, Extended, MESSAGE_BYTES_MAX, Message};
use crate::reply::{self, Formats};

/// Why KILL_CLIENT ends a connection.
const KILLED: &str = "admin forced disconnect";

/// One connection to the console.
pub(super) struct Session<'a, S> {
    pub(super) console: &'a Console,
    pub(super) id: u64,
    pub(super) signals: Arc<Signals>,
    pub(super) label: String,
    pub(super) admin: bool,
    pub(super) stream: S,
    /// Bytes that are not parsed yet.
    pub(super) received: Vec<u8>,
    /// Bytes that are not sent yet. Empty before each message.
    pub(super) out: Vec<u8>,
    pub(super) prepared: Prepared,
}

/// Why a command was not completed.
pub(super) enum Stop {
    /// The client got an error, and may continue.
    Refused,
    /// The connection ends.
    End(String),
    /// The process ends.
    Exit,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<'_, S> {
    /// Serves the connection. Returns the reason for its end; None if the process ends.
    pub(super) async fn run(mut self) -> Option<String> {
        loop {
            let ended = self.answer_all().await;
            if let Err(error) = self.flush().await {
                return Some(error.to_string());
            }
            if let Err(reason) = ended {
                return reason;
            }
            let signals = Arc::clone(&self.signals);
            let read = tokio::select! {
                biased;
                () = signals.kill.notified() => {
                    let reason = self.give_up(KILLED);
                    // A client that reads gets the message.
                    let _ = self.flush().await;
                    return Some(reason);
                }
                read = self.read() => read,
            };
            if let Err(reason) = read {
                return Some(reason);
            }
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        match read_some(&mut self.stream, &mut self.received).await {
            Ok(0) => Err("client unexpected eof".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Answers all complete messages.
    async fn answer_all(&mut self) -> Result<(), Option<String>> {
        loop {
            let message = match message::take(&mut self.received) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(reason) => {
                    match self.received.first() {
                        Some(code) if reason == message::UNKNOWN => {
                            let what = format!("unknown pkt from client: {code}/{code:#x}");
                            self.console.control.error(&format!("{} {what}", self.label));
                        }
                        _ => self.console.note_request(self.id),
                    }
                    return Err(Some(self.give_up(&reason)));
                }
            };
            self.answer(message).await?;
            // Replies are long if there are many clients: one at a time is enough memory.
            self.flush().await.map_err(|error| Some(error.to_string()))?;
        }
    }

    /// Sends the output. The connection of a client that does not read can be ended meanwhile.
    async fn flush(&mut self) -> io::Result<()> {
        let Self { stream, out, signals, .. } = self;
        let send = async {
            stream.write_all(out).await?;
            stream.flush().await
        };
        let sent = tokio::select! {
            biased;
            sent = send => sent,
            () = signals.kill.notified() => Err(io::Error::other(KILLED)),
        };
        self.out.clear();
        sent
    }

    async fn answer(&mut self, message: Message) -> Result<(), Option<String>> {
        if !matches!(message, Message::Terminate) {
            self.console.note_request(self.id);
        }
        let answered = match message {
            Message::Terminate => return Err(Some("client close request".to_owned())),
            Message::Extended(Extended::Sync) => {
                self.prepared.sync();
                reply::ready(&mut self.out);
                return Ok(());
            }
            _ if self.prepared.skips => return Ok(()),
            Message::Extended(message) => {
                let answered = self.extended(message).await;
                self.prepared.skips = matches!(answered, Err(Stop::Refused));
                answered
            }
            Message::Query(text) => {
                self.prepared.simple_query();
                let answered = self.query(&text).await;
                if !matches!(answered, Err(Stop::End(_) | Stop::Exit)) {
                    reply::ready(&mut self.out);
                }
                answered
            }
            Message::Other(code) => {
                let refusal = format!("unsupported packet type for admin console: {code}");
                let _ = self.refuse(refusal);
                reply::ready(&mut self.out);
                return Err(Some(self.give_up("bad packet")));
            }
        };
        match answered {
            Ok(()) | Err(Stop::Refused) => Ok(()),
            Err(Stop::End(reason)) => Err(Some(reason)),
            Err(Stop::Exit) => Err(None),
        }
    }

    /// Carries out a query, without its ReadyForQuery.
    async fn query(&mut self, text: &[u8]) -> Result<(), Stop> {
        let Some(command) = self.command(text)? else {
            backend::empty_query(&mut self.out);
            return Ok(());
        };
        if let Some(heads) = command.heads() {
            reply::columns(&mut self.out, &heads, &Formats::default());
        }
        self.execute(command, &Formats::default()).await
    }

    /// Returns the command of a text, if the user is allowed to run it; `None` for the empty query,
    /// by which drivers test a connection.
    pub(super) fn command(&mut self, text: &[u8]) -> Result<Option<Command>, Stop> {
        if command::is_empty(text) {
            return Ok(None);
        }
        let columns = self.console.control.config().global.console_columns;
        let command = Command::parse(text, columns).map_err(|invalid| match invalid {
            Invalid::Arguments => self.refuse("bad arguments"),
            Invalid::Unknown => {
                let message = [b"invalid command '", text, b"', use SHOW HELP;"].concat();
                let hint = command::nearest(text).map(|known| format!("Perhaps you mean {known}."));
                self.refuse_with(sqlstate::PROTOCOL_VIOLATION, message, (b'H', hint))
            }
        })?;
        if command.needs_admin() && !self.admin {
            return Err(self.refuse("admin access needed"));
        }
        Ok(Some(command))
    }

    /// Appends the reply of a command, without the columns of its result.
    pub(super) async fn execute(
        &mut self,
        command: Command,
        formats: &Formats,
    ) -> Result<(), Stop> {
        let (out, control) = (&mut self.out, &self.console.control);
        match command {
            Command::Show(selected) => {
                self.console.note_columns(&selected);
                let view = self.console.view(&selected).await;
                reply::show(out, &selected, view, formats);
            }
            Command::Help => {
                reply::notice(out, "Console usage", Some(&command::help()));
                reply::done(out, "SHOW");
            }
            Command::Parameter(_, value) => reply::parameter(out, value),
            Command::ShowKey(name) => {
                let rows = config::show(&control.config());
                let value = rows.into_iter().find(|row| row.key == name);
                let value = value.and_then(|row| row.value).unwrap_or_default();
                reply::parameter(out, &value);
            }
            Command::SetParameter => {
                reply::notice(out, "SET ignored", None);
                reply::done(out, "SET");
            }
            Command::Set { key, value } => {
                let shown = if Global::is_secret(&key) { "(secret)" } else { value.as_str() };
                let tag = format!("SET {key}={shown}");
                let notice = control.set(key, value).await.map_err(|reason| {
                    let code = sqlstate::PROTOCOL_VIOLATION;
                    self.refuse_with(code, "SET failed", (b'D', Some(reason)))
                })?;
                notice.iter().for_each(|notice| reply::notice(&mut self.out, notice, None));
                reply::done(&mut self.out, &tag);
            }
            Command::Reload => {
                control.note("RELOAD command issued");
                match control.reload().await {
                    Ok(changes) => {
                        if let Some(changes) = listed(&changes) {
                            reply::notice(out, "RELOAD changed the configuration", Some(&changes));
                        }
                        reply::done(out, "RELOAD");
                    }
                    Err(NotReloaded { kept, mistakes }) => {
                        kept.iter().for_each(|what| reply::notice(out, what, None));
                        let message = "RELOAD failed, see logs for additional details";
                        let detail = (b'D', listed(&mistakes));
                        let code = sqlstate::CONFIG_FILE_ERROR;
                        return Err(self.refuse_with(code, message, detail));
                    }
                }
            }
            Command::ExplainRoute(text) => {
                reply::judgements(out, &control.explain_route(&text));
            }
            Command::Order(order) => self.order(order).await?,
            Command::Incomplete(what) => return Err(self.refuse(what)),
            Command::Shutdown(how) => {
                control.note(match how {
                    Shutdown::Now => "SHUTDOWN command issued",
                    Shutdown::WaitForServers => "SHUTDOWN WAIT_FOR_SERVERS command issued",
                    Shutdown::WaitForClients => "SHUTDOWN WAIT_FOR_CLIENTS command issued",
                });
                control.shutdown(how);
                if how == Shutdown::Now {
                    return Err(Stop::Exit);
                }
                reply::done(out, "SHUTDOWN");
            }
        }
        Ok(())
    }

    /// Waits until the order is complete, or its client cancels or leaves.
    async fn order(&mut self, order: Order) -> Result<(), Stop> {
        let control = Arc::clone(&self.console.control);
        if let Some(reason) = control.refusal(&order) {
            return Err(self.refuse(reason));
        }
        if let Some(note) = order.note() {
            control.note(&note);
        }
        if let Order::KillClient(id) = order
            && self.console.kill(id)
        {
            reply::done(&mut self.out, order.tag());
            return Ok(());
        }
        let tag = order.tag();
        let is_global = matches!(order, Order::Pause(None) | Order::Suspend);
        let signals = Arc::clone(&self.signals);
        let cancelled = signals.cancel.notified();
        tokio::pin!(cancelled);
        let mut done = control.order(order);
        loop {
            let has_room = self.received.len() <= MESSAGE_BYTES_MAX;
            tokio::select! {
                biased;
                result = &mut done => {
                    result.map_err(|reason| self.refuse(reason))?;
                    reply::done(&mut self.out, tag);
                    return Ok(());
                }
                () = &mut cancelled => {
                    if is_global {
                        control.give_up();
                    }
                    reply::canceled(&mut self.out);
                    return Err(Stop::Refused);
                }
                () = signals.kill.notified() => return Err(Stop::End(self.give_up(KILLED))),
                // Its messages are read later, but its end is noticed now.
                read = read_some(&mut self.stream, &mut self.received), if has_room => match read {
                    Ok(0) => return Err(Stop::End("client unexpected eof".to_owned())),
                    Ok(_) => {}
                    Err(error) => return Err(Stop::End(error.to_string())),
                },
            }
        }
    }

    /// Reports an error to the client.
    pub(super) fn refuse(&mut self, message: impl Into<Vec<u8>>) -> Stop {
        self.refuse_with(sqlstate::PROTOCOL_VIOLATION, message, (b'D', None))
    }

    /// Reports an error to the client with another code and a further field.
    fn refuse_with(
        &mut self,
        code: &str,
        message: impl Into<Vec<u8>>,
        field: (u8, Option<String>),
    ) -> Stop {
        let message = message.into();
        let text = String::from_utf8_lossy(&message).into_owned();
        self.console.control.error(&text);
        self.console.control.pooler_error(&self.label, &text);
        reply::error_with(&mut self.out, code, message, field);
        Stop::Refused
    }

    /// Tells the client why its connection ends.
    fn give_up(&mut self, reason: &str) -> String {
        self.console.control.pooler_error(&self.label, reason);
        reply::fatal(&mut self.out, reason);
        reason.to_owned()
    }
}

/// The lines as one text, but for those that are too many; none if there are none.
fn listed(lines: &[String]) -> Option<String> {
    /// Lines that an operator reads.
    const LINES_MAX: usize = 20;
    let mut shown = lines.iter().take(LINES_MAX).cloned().collect::<Vec<_>>();
    if lines.len() > LINES_MAX {
        shown.push(format!("and {} more", lines.len() - LINES_MAX));
    }
    (!shown.is_empty()).then(|| shown.join("\n"))
}

/// One read may bring many messages, but never much more than the longest.
async fn read_some<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
) -> io::Result<usize> {
    let room = (MESSAGE_BYTES_MAX + 1).saturating_sub(received.len()).max(1) as u64;
    stream.take(room).read_buf(received).await
}
