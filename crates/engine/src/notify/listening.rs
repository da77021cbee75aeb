//! The channels of one client and their sources (`pool_mode = auto`): plain data.
//! `notify/listen.rs` handles them; decision 011 has the reasons.
//!
//! Each channel has one source at any time:
//!
//! ```text
//!  LISTEN runs on the client's server ─► moving: this server delivers, and the client keeps it
//!     ─► the listener has the channel, too ─► the server sends a mark through PostgreSQL's queue
//!     ─► live: the server has delivered everything before the mark, and the listener delivers
//!        everything after it. Other clients may use the server now.
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use wire::messages::NotificationResponse;

use crate::ids::{Micros, PoolId};
use crate::notify::interruption::Interruption;
use crate::session::carried::Carried;

/// Maximal size of notifications kept for a client in a transaction, in bytes. PostgreSQL keeps
/// them in its queue; Weir closes a client with more.
pub(crate) const UNTOLD_LEN_MAX: usize = 4 << 20;

/// Maximal size of the kept copies of the client's own notifications, in bytes.
pub(crate) const ECHOES_LEN_MAX: usize = 4 << 20;

/// Maximal number of kept notifications that are compared with a new one from the server or the
/// listener. Notifications beyond it are sent twice, so the work for each is bounded.
const KEPT_COMPARED_MAX: usize = 1_024;

/// The maximum number of channels of the listener for one client. With more, the client listens on
/// each server that it gets.
pub(crate) const CHANNELS_MAX: usize = 64;

#[derive(Debug)]
pub struct Listening {
    /// The pool whose listener is used.
    pub pool: PoolId,
    /// Serial number of the latest request to the listener without an answer; 0 = none.
    pub request: u64,
    /// Channels whose notifications come only from the listener.
    pub live: Carried,
    /// Channels whose notifications come from the client's server, which it keeps for them.
    pub moving: Carried,
    /// The channel for the mark. The listener listens to the moving channels, and forwards their
    /// notifications after the mark.
    pub mark: Option<Arc<[u8]>>,
    /// The payload of the mark that the server was told to send.
    pub token: Option<Box<[u8]>>,
    /// The server has sent the mark: the listener's notifications count from now on.
    pub marked: bool,
    /// The listener was lost, and is asked again for the live channels.
    pub unheard: bool,
    /// The client is warned of it when there is another one.
    pub has_missed: bool,
    /// The client has been warned that it gets no notifications.
    pub is_warned: bool,
    /// The earliest time for another hand-over after a failed one, unless the client sends
    /// something.
    pub retry_at: Micros,
    /// The client's own notifications that its server has delivered. The listener will deliver them
    /// again.
    echoes: VecDeque<Box<[u8]>>,
    echoes_len: usize,
    /// Messages that wait for the end of the client's transaction.
    untold: VecDeque<News>,
    untold_len: usize,
}

/// A message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The body of a NotificationResponse.
    Notification(Arc<[u8]>),
    /// The listener was interrupted.
    Gap,
    /// The listener is lost and not replaced.
    Deaf,
}

/// The decision about a notification from the client's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    Pass,
    /// The listener delivers it, or it was Weir's own mark.
    Drop,
}

impl Listening {
    pub fn new(pool: PoolId) -> Self {
        Self {
            pool,
            request: 0,
            live: Carried::default(),
            moving: Carried::default(),
            mark: None,
            token: None,
            marked: false,
            unheard: false,
            has_missed: false,
            is_warned: false,
            retry_at: 0,
            echoes: VecDeque::new(),
            echoes_len: 0,
            untold: VecDeque::new(),
            untold_len: 0,
        }
    }

    /// Decides about a notification of the client's server. `is_own`: the client itself has sent
    /// it.
    pub fn hear_server(&mut self, said: &NotificationResponse<'_>, is_own: bool) -> Hearing {
        if let (Some(token), Some(mark)) = (&self.token, &self.mark)
            && **mark == *said.channel
        {
            // The server also delivers older notifications to a session that listens already. Marks
            // of other clients may be among them.
            self.marked |= **token == *said.payload;
            return Hearing::Drop;
        }
        // For a channel that moves, the server delivers what precedes the mark. The listener may
        // have delivered later notifications before it was lost.
        let comes_first = !self.marked && self.moving.get(said.channel).is_some();
        if self.unheard && !is_own && !comes_first {
            return self.hear_in_place_of_listener(said);
        }
        if self.live.get(said.channel).is_some() {
            if !is_own {
                return Hearing::Drop;
            }
            self.expect_echo(said);
        } else if self.marked && self.moving.get(said.channel).is_some() {
            return Hearing::Drop;
        }
        Hearing::Pass
    }

    /// Decides about a notification while there is no listener, which may have delivered it before.
    /// Kept messages are sent to the client first. The server delivers in the order of the commits, so
    /// a kept copy comes after what the server has delivered before.
    fn hear_in_place_of_listener(&mut self, said: &NotificationResponse<'_>) -> Hearing {
        let was_kept = self.take_kept(said);
        if !was_kept && (!self.has_untold() || self.untold_len > UNTOLD_LEN_MAX) {
            return Hearing::Pass;
        }
        self.keep(News::Notification(body_of(said).into()));
        Hearing::Drop
    }

    /// Records the client's own notification, which the server delivers before the command's end.
    /// The listener delivers it as well, earlier or later.
    fn expect_echo(&mut self, said: &NotificationResponse<'_>) {
        // A lost listener delivers nothing. If the next one does, the client gets the notification
        // twice. A wrong echo would suppress another client's notification.
        if self.take_kept(said) || self.unheard || self.untold.len() > KEPT_COMPARED_MAX {
            return;
        }
        let body = body_of(said);
        // Notifications that are not recorded are sent twice.
        if self.echoes_len + body.len() <= ECHOES_LEN_MAX {
            self.echoes_len += body.len();
            self.echoes.push_back(body.into());
        }
    }

    /// Returns the position of the notification among the first kept ones.
    fn kept(&self, said: &NotificationResponse<'_>) -> Option<usize> {
        let said = body_of(said);
        let is_it = |news: &News| match news {
            News::Notification(body) => **body == *said,
            News::Gap | News::Deaf => false,
        };
        self.untold.iter().take(KEPT_COMPARED_MAX).position(is_it)
    }

    /// Removes the notification from the kept ones. Returns false if it is not among them.
    fn take_kept(&mut self, said: &NotificationResponse<'_>) -> bool {
        let at = self.kept(said);
        if let Some(News::Notification(body)) = at.and_then(|at| self.untold.remove(at)) {
            self.untold_len -= body.len();
        }
        at.is_some()
    }

    /// Should this notification of the listener be sent to the client?
    pub fn hear_listener(&mut self, body: &[u8]) -> bool {
        let Ok(said) = NotificationResponse::decode(body) else { return false };
        let counts = match self.live.get(said.channel) {
            // Until the client is warned of the gap, its server delivers these channels.
            Some(_) => !self.unheard,
            None => self.moving.get(said.channel).is_some(),
        };
        if !counts {
            return false;
        }
        // The listener delivers them in the same order.
        let mut first = self.echoes.iter().take(KEPT_COMPARED_MAX);
        match first.position(|echo| **echo == *body) {
            Some(at) => {
                self.echoes.remove(at);
                self.echoes_len -= body.len();
                false
            }
            None => true,
        }
    }

    /// Ends all channels but these. Echoes of ended channels are forgotten.
    pub fn give_up_all_but(&mut self, wanted: &Carried) {
        self.live = self.live.shared_with(wanted);
        let Self { live, echoes, echoes_len, .. } = self;
        echoes.retain(|body| {
            NotificationResponse::decode(body).is_ok_and(|said| live.get(said.channel).is_some())
        });
        *echoes_len = echoes.iter().map(|body| body.len()).sum();
        if self.live.is_empty() {
            // There is nothing to ask a new listener for.
            self.find_listener();
        }
    }

    /// Records the loss of the listener, and of what it would have delivered.
    pub fn lose_listener(&mut self, how: Interruption) {
        self.echoes.clear();
        self.echoes_len = 0;
        self.request = 0;
        self.unheard |= self.hands_over() || !self.live.is_empty();
        self.has_missed |= how.has_missed;
        if !self.hands_over() {
            self.mark = None;
        }
    }

    /// Is the server being told to send the mark?
    pub fn hands_over(&self) -> bool {
        self.token.is_some()
    }

    /// Records that the listener listens to the live channels again. Returns true if notifications may
    /// have been lost meanwhile.
    pub fn find_listener(&mut self) -> bool {
        (self.unheard, self.is_warned) = (false, false);
        std::mem::take(&mut self.has_missed)
    }

    /// Keeps a message for the client. Returns false if that exceeds the limit.
    pub fn keep(&mut self, news: News) -> bool {
        if let News::Notification(body) = &news {
            self.untold_len += body.len();
        }
        self.untold.push_back(news);
        self.untold_len <= UNTOLD_LEN_MAX
    }

    pub fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    pub fn take_untold(&mut self) -> VecDeque<News> {
        self.untold_len = 0;
        std::mem::take(&mut self.untold)
    }

    /// Would notifications be lost if the listener were closed now?
    pub fn depends_on_listener(&self) -> bool {
        self.unheard || self.has_untold() || !self.live.is_empty()
    }

    /// Returns all channels for which the listener may have been asked.
    pub fn names(&self) -> Vec<Box<[u8]>> {
        let all = self.live.all().iter().chain(self.moving.all().iter());
        all.map(|channel| channel.name.clone()).collect()
    }

    /// Does the listener have requests of this client?
    pub fn is_known(&self) -> bool {
        !self.live.is_empty() || !self.moving.is_empty()
    }
}

fn body_of(said: &NotificationResponse<'_>) -> Vec<u8> {
    let mut body = said.pid.to_be_bytes().to_vec();
    for text in [said.channel, said.payload] {
        body.extend_from_slice(text);
        body.push(0);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pid: u32, channel: &str, payload: &str) -> Arc<[u8]> {
        let mut message = Vec::new();
        wire::backend::notification(&mut message, pid, channel.as_bytes(), payload.as_bytes());
        message[wire::HEADER_LEN..].into()
    }

    fn names(names: &[&str]) -> Carried {
        Carried::names(names.iter().map(|name| name.as_bytes().into()))
    }

    fn from_server(own: &mut Listening, channel: &str, is_own: bool) -> Hearing {
        let body = body(7, channel, "x");
        own.hear_server(&NotificationResponse::decode(&body).unwrap(), is_own)
    }

    #[test]
    fn each_channel_has_one_source() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        own.moving = names(&["moving"]);
        own.mark = Some(b"mark"[..].into());
        assert_eq!(from_server(&mut own, "live", false), Hearing::Drop);
        assert_eq!(from_server(&mut own, "moving", false), Hearing::Pass);
        own.token = Some(b"y"[..].into());
        assert_eq!(from_server(&mut own, "mark", true), Hearing::Drop);
        assert_eq!(
            from_server(&mut own, "moving", false),
            Hearing::Pass,
            "that was another's mark"
        );
        own.token = Some(b"x"[..].into());
        assert_eq!(from_server(&mut own, "mark", true), Hearing::Drop);
        assert_eq!(from_server(&mut own, "moving", false), Hearing::Drop);
        assert!(own.hear_listener(&body(8, "moving", "y")));
        assert!(own.hear_listener(&body(8, "live", "y")));
        assert!(!own.hear_listener(&body(8, "other", "y")));
    }

    #[test]
    fn a_clients_own_notification_is_sent_once() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        // The server delivers first, twice.
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert!(own.hear_listener(&body(7, "live", "another")));
        assert!(!own.hear_listener(&body(7, "live", "x")));
        assert!(!own.hear_listener(&body(7, "live", "x")));
        assert!(own.hear_listener(&body(7, "live", "x")));
        // The listener delivers first.
        assert!(own.keep(News::Notification(body(7, "live", "x"))));
        assert!(own.keep(News::Gap));
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(own.take_untold(), [News::Gap]);
        assert!(own.hear_listener(&body(7, "live", "x")));
    }

    #[test]
    fn no_echo_is_expected_without_a_channel_or_a_listener() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live", "other"]);
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(from_server(&mut own, "other", true), Hearing::Pass);
        own.give_up_all_but(&names(&["other"]));
        own.live = names(&["live", "other"]);
        assert!(own.hear_listener(&body(7, "live", "x")));
        assert!(!own.hear_listener(&body(7, "other", "x")));
        assert!(own.keep(News::Notification(body(7, "live", "x"))));
        own.lose_listener(Interruption { has_missed: true });
        assert_eq!(from_server(&mut own, "live", false), Hearing::Drop, "it is told once");
        assert_eq!(from_server(&mut own, "other", false), Hearing::Drop, "it is told behind that");
        let told = ["live", "other"].map(|channel| News::Notification(body(7, channel, "x")));
        assert_eq!(own.take_untold(), told);
        assert_eq!(from_server(&mut own, "live", false), Hearing::Pass);
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        own.find_listener();
        assert_eq!(from_server(&mut own, "live", false), Hearing::Drop);
        assert!(own.hear_listener(&body(7, "live", "x")));
    }

    #[test]
    fn notifications_of_the_server_before_the_mark_come_first() {
        let mut own = Listening::new(PoolId(0));
        own.moving = names(&["moving"]);
        own.mark = Some(b"mark"[..].into());
        own.token = Some(b"x"[..].into());
        assert!(own.hear_listener(&body(8, "moving", "behind the mark")));
        assert!(own.keep(News::Notification(body(8, "moving", "behind the mark"))));
        own.lose_listener(Interruption { has_missed: true });
        assert_eq!(from_server(&mut own, "moving", false), Hearing::Pass);
        assert_eq!(from_server(&mut own, "mark", true), Hearing::Drop);
        assert_eq!(from_server(&mut own, "moving", false), Hearing::Drop);
        assert_eq!(own.take_untold().len(), 2, "that is told behind what the listener has told");
    }

    #[test]
    fn kept_echoes_have_a_limit() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        let long = body(7, "live", &"x".repeat(8000));
        let said = NotificationResponse::decode(&long).unwrap();
        let count = ECHOES_LEN_MAX / long.len() + 10;
        (0..count).for_each(|_| assert_eq!(own.hear_server(&said, true), Hearing::Pass));
        // The first ones are delivered once, and the others twice.
        let told = (0..count).filter(|_| own.hear_listener(&long)).count();
        assert_eq!((told, own.echoes_len), (10, 0));
    }

    #[test]
    fn only_the_first_kept_messages_are_compared_with_a_notification() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        for number in 0..=KEPT_COMPARED_MAX {
            own.keep(News::Notification(body(8, "live", &number.to_string())));
        }
        own.keep(News::Notification(body(7, "live", "x")));
        // It is delivered twice, and no echo of it is expected.
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!((own.echoes.len(), own.untold.len()), (0, KEPT_COMPARED_MAX + 2));
        own.lose_listener(Interruption { has_missed: true });
        assert_eq!(from_server(&mut own, "live", false), Hearing::Drop);
        assert_eq!(own.untold.len(), KEPT_COMPARED_MAX + 3);
    }

    #[test]
    fn only_the_first_echoes_are_compared_with_a_notification() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        let bodies: Vec<_> =
            (0..=KEPT_COMPARED_MAX).map(|number| body(7, "live", &number.to_string())).collect();
        for body in &bodies {
            own.hear_server(&NotificationResponse::decode(body).unwrap(), true);
        }
        assert!(own.hear_listener(&bodies[KEPT_COMPARED_MAX]), "it is told twice");
        assert!(bodies.iter().all(|body| !own.hear_listener(body)));
    }

    #[test]
    fn kept_messages_have_a_limit() {
        let mut own = Listening::new(PoolId(0));
        let long = body(7, "live", &"x".repeat(8000));
        let kept = (0..).take_while(|_| own.keep(News::Notification(long.clone()))).count();
        assert_eq!(kept, UNTOLD_LEN_MAX / long.len());
        own.take_untold();
        assert!(own.keep(News::Notification(long)));
    }
}
