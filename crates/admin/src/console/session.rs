//! One connection of the console: its messages and what is answered to each. What a command does
//! to the process is [`crate::Control`]'s.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Console, Signals};
use crate::command::{self, Command, Invalid};
use crate::control::{Order, Shutdown};
use crate::message::{self, MESSAGE_BYTES_MAX, Message};
use crate::reply;

/// One connection.
pub(super) struct Session<'a, S> {
    pub(super) console: &'a Console,
    pub(super) id: u64,
    pub(super) signals: Arc<Signals>,
    pub(super) admin: bool,
    pub(super) stream: S,
    /// Not taken apart yet.
    pub(super) received: Vec<u8>,
    /// Not sent yet.
    pub(super) out: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<'_, S> {
    pub(super) async fn run(mut self) -> String {
        loop {
            let ended = self.answer_all().await;
            if let Err(error) = self.flush().await {
                return error.to_string();
            }
            if let Err(reason) = ended {
                return reason;
            }
            let signals = Arc::clone(&self.signals);
            let read = tokio::select! {
                biased;
                () = signals.kill.notified() => {
                    let reason = self.give_up("admin forced disconnect");
                    // It is told if it listens.
                    let _ = self.flush().await;
                    return reason;
                }
                read = self.read() => read,
            };
            if let Err(reason) = read {
                return reason;
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

    /// Answers what has been received as a whole.
    async fn answer_all(&mut self) -> Result<(), String> {
        loop {
            let message = match message::take(&mut self.received) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(reason) => return Err(self.give_up(&reason)),
            };
            self.answer(message).await?;
            // Replies are long where there are many clients: one at a time is enough to hold.
            self.flush().await.map_err(|error| error.to_string())?;
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.stream.flush().await
    }

    async fn answer(&mut self, message: Message) -> Result<(), String> {
        let refusal = match message {
            Message::Query(text) => {
                self.console.note_request(self.id);
                self.query(&text).await?;
                reply::ready(&mut self.out);
                return Ok(());
            }
            Message::Terminate => return Err("client close request".to_owned()),
            Message::Extended => {
                "extended query protocol not supported by admin console".to_owned()
            }
            Message::Other(code) => {
                format!("unsupported packet type for admin console: {code}")
            }
        };
        reply::error(&mut self.out, refusal);
        reply::ready(&mut self.out);
        Err(self.give_up("bad packet"))
    }

    /// Carries out a query; all but its ReadyForQuery.
    async fn query(&mut self, text: &[u8]) -> Result<(), String> {
        let command = match Command::parse(text) {
            Ok(command) => command,
            Err(Invalid::Arguments) => {
                reply::error(&mut self.out, "bad arguments");
                return Ok(());
            }
            Err(Invalid::Unknown) => {
                let message = [b"invalid command '", text, b"', use SHOW HELP;"].concat();
                reply::error(&mut self.out, message);
                return Ok(());
            }
        };
        if command.needs_admin() && !self.admin {
            reply::error(&mut self.out, "admin access needed");
            return Ok(());
        }
        self.execute(command).await
    }

    async fn execute(&mut self, command: Command) -> Result<(), String> {
        let (out, control) = (&mut self.out, &self.console.control);
        match command {
            Command::Show(show) => reply::show(out, show, self.console.view().await),
            Command::Help => {
                reply::notice(out, "Console usage", Some(&command::help()));
                reply::done(out, "SHOW");
            }
            Command::Fds => {
                reply::error(out, "SHOW FDS is not supported: Weir does not hand over its sockets");
            }
            Command::Parameter(name, value) => reply::parameter(out, name, value),
            Command::SetParameter => {
                reply::notice(out, "SET ignored", None);
                reply::done(out, "SET");
            }
            Command::Set { key, value } => {
                let tag = format!("SET {key}={value}");
                match control.set(key, value).await {
                    Ok(()) => reply::done(out, &tag),
                    // Why is in the log.
                    Err(_) => reply::error(out, "SET failed"),
                }
            }
            Command::Reload => {
                control.note("RELOAD command issued");
                match control.reload().await {
                    Ok(()) => reply::done(out, "RELOAD"),
                    Err(reason) => reply::reload_failed(out, &reason),
                }
            }
            Command::Order(order) => self.order(order).await?,
            Command::Incomplete(what) => reply::error(out, what),
            Command::Shutdown(how) => {
                control.note(match how {
                    Shutdown::Now => "SHUTDOWN command issued",
                    Shutdown::WaitForServers => "SHUTDOWN WAIT_FOR_SERVERS command issued",
                    Shutdown::WaitForClients => "SHUTDOWN WAIT_FOR_CLIENTS command issued",
                });
                control.shutdown(how);
                if how == Shutdown::Now {
                    return Err("shutting down".to_owned());
                }
                reply::done(out, "SHUTDOWN");
            }
        }
        Ok(())
    }

    /// Waits until the order has been carried out, or nobody wants to know any more.
    async fn order(&mut self, order: Order) -> Result<(), String> {
        let control = Arc::clone(&self.console.control);
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
                    match result {
                        Ok(()) => reply::done(&mut self.out, tag),
                        Err(reason) => reply::error(&mut self.out, reason),
                    }
                    return Ok(());
                }
                () = &mut cancelled => {
                    if is_global {
                        control.give_up();
                    }
                    reply::canceled(&mut self.out);
                    return Ok(());
                }
                // What it says is for later, but that it is gone is news.
                read = read_some(&mut self.stream, &mut self.received), if has_room => match read {
                    Ok(0) => return Err("client unexpected eof".to_owned()),
                    Ok(_) => {}
                    Err(error) => return Err(error.to_string()),
                },
            }
        }
    }

    /// Tells the client why its connection ends.
    fn give_up(&mut self, reason: &str) -> String {
        reply::fatal(&mut self.out, reason);
        reason.to_owned()
    }
}

/// One read may bring many messages, but never much more than the longest.
async fn read_some<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
) -> io::Result<usize> {
    let room = (MESSAGE_BYTES_MAX + 1).saturating_sub(received.len()).max(1) as u64;
    stream.take(room).read_buf(received).await
}
