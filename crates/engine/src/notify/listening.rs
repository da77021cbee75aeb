//! What a client listens to, and from whom it hears of it (`pool_mode = auto`): plain data.
//! What happens to it is in `notify/listen.rs`; why it is so is told in decision 011.
//!
//! Each channel has one source at any time:
//!
//! ```text
//!  LISTEN runs on the client's server ─► moving: the server tells of it, the client keeps it
//!     ─► the listener has it too ─► a mark is sent through the channel's queue
//!     ─► live: what stands before the mark came from the server, what is behind it comes from
//!        the listener. The server is others' from now on.
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use wire::messages::NotificationResponse;

use crate::ids::{Micros, PoolId};
use crate::session::carried::Carried;

/// What is kept for a client that cannot be told yet, in bytes. PostgreSQL keeps it in its queue;
/// who has more waiting than that is closed.
pub(crate) const UNTOLD_LEN_MAX: usize = 4 << 20;

/// What is kept of what a client has notified itself until the listener has told it, too, in bytes.
pub(crate) const ECHOES_LEN_MAX: usize = 4 << 20;

/// So many of the news kept for a client are compared with what its server tells, and so many of its own
/// with what the listener tells. Notifications beyond this number are told twice, so that the work for one is
/// bounded.
const KEPT_COMPARED_MAX: usize = 1_024;

/// More channels are not carried: all of them are listened to on each server that the client gets.
pub(crate) const CHANNELS_MAX: usize = 64;

#[derive(Debug)]
pub struct Listening {
    /// The pool whose listener it is.
    pub pool: PoolId,
    /// Serial number of the latest letter to the listener that awaits an answer; 0 = there is none.
    pub request: u64,
    /// Channels of which the listener tells, and it alone.
    pub live: Carried,
    /// Channels of which the client's server tells, which the client keeps for that.
    pub moving: Carried,
    /// The listener has these too, and knows from where on it is to tell of them by a notification
    /// on this channel.
    pub mark: Option<Arc<[u8]>>,
    /// What the mark says that the server has been told to send.
    pub token: Option<Box<[u8]>>,
    /// The server has told of that mark: all that follows is the listener's to tell.
    pub marked: bool,
    /// The listener was lost, and is asked for what is live once more.
    pub unheard: bool,
    /// The client has been told that nothing is told to it.
    pub is_warned: bool,
    /// A hand-over has failed: no other is begun before, unless the client does something.
    pub retry_at: Micros,
    /// What the client has heard of its own doing from its server, and what the listener will tell
    /// once more.
    echoes: VecDeque<Box<[u8]>>,
    echoes_len: usize,
    /// What the client is not told before its transaction is over.
    untold: VecDeque<News>,
    untold_len: usize,
}

/// What a client is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The body of a NotificationResponse.
    Notification(Arc<[u8]>),
    /// The listener was lost for a while.
    Gap,
    /// The listener is lost, and there is none in its place.
    Deaf,
}

/// What becomes of what a server tells its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    Pass,
    /// The listener tells of it, or it was our own mark.
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
            is_warned: false,
            retry_at: 0,
            echoes: VecDeque::new(),
            echoes_len: 0,
            untold: VecDeque::new(),
            untold_len: 0,
        }
    }

    /// The client's server tells of this; `is_own`: its present client has brought it about.
    pub fn hear_server(&mut self, said: &NotificationResponse<'_>, is_own: bool) -> Hearing {
        if let (Some(token), Some(mark)) = (&self.token, &self.mark)
            && **mark == *said.channel
        {
            // A server that listens already is told of what it has not read yet, too, and other
            // clients' marks may be among that.
            self.marked |= **token == *said.payload;
            return Hearing::Drop;
        }
        if self.unheard && !is_own {
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

    /// Only the server tells of it, unless the listener did before it was lost. What the client is still
    /// to be told comes first.
    fn hear_in_place_of_listener(&mut self, said: &NotificationResponse<'_>) -> Hearing {
        if self.kept(said).is_some() {
            return Hearing::Drop;
        }
        if !self.has_untold() || self.untold_len > UNTOLD_LEN_MAX {
            return Hearing::Pass;
        }
        self.keep(News::Notification(body_of(said).into()));
        Hearing::Drop
    }

    /// PostgreSQL tells the one who notifies before its command has ended, and so the server has
    /// done; the listener's word may have come already, or is still to come.
    fn expect_echo(&mut self, said: &NotificationResponse<'_>) {
        // A listener that is lost does not tell. If the next one does, it is told twice, which is
        // better than an echo for which another's notification is taken later.
        if self.take_kept(said) || self.unheard || self.untold.len() > KEPT_COMPARED_MAX {
            return;
        }
        let body = body_of(said);
        // What is not kept is told twice.
        if self.echoes_len + body.len() <= ECHOES_LEN_MAX {
            self.echoes_len += body.len();
            self.echoes.push_back(body.into());
        }
    }

    /// Where it stands among the first that are kept for the client.
    fn kept(&self, said: &NotificationResponse<'_>) -> Option<usize> {
        let said = body_of(said);
        let is_it = |news: &News| match news {
            News::Notification(body) => **body == *said,
            News::Gap | News::Deaf => false,
        };
        self.untold.iter().take(KEPT_COMPARED_MAX).position(is_it)
    }

    /// The client is told of this now. False if it is not among what is kept for it.
    fn take_kept(&mut self, said: &NotificationResponse<'_>) -> bool {
        let at = self.kept(said);
        if let Some(News::Notification(body)) = at.and_then(|at| self.untold.remove(at)) {
            self.untold_len -= body.len();
        }
        at.is_some()
    }

    /// Is this what the client is to hear from the listener?
    pub fn hear_listener(&mut self, body: &[u8]) -> bool {
        let Ok(said) = NotificationResponse::decode(body) else { return false };
        let is_live = self.live.get(said.channel).is_some();
        if !is_live && self.moving.get(said.channel).is_none() {
            return false;
        }
        // The listener tells them in the same order.
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

    /// Of channels that the client has given up nothing is heard, nor awaited.
    pub fn give_up_all_but(&mut self, wanted: &Carried) {
        self.live = self.live.shared_with(wanted);
        let Self { live, echoes, echoes_len, .. } = self;
        echoes.retain(|body| {
            NotificationResponse::decode(body).is_ok_and(|said| live.get(said.channel).is_some())
        });
        *echoes_len = echoes.iter().map(|body| body.len()).sum();
    }

    /// The listener is gone, and with it what it would have told.
    pub fn lose_listener(&mut self) {
        self.echoes.clear();
        self.echoes_len = 0;
        self.request = 0;
        self.unheard |= self.hands_over() || !self.live.is_empty();
        if !self.hands_over() {
            self.mark = None;
        }
    }

    /// Is the server being told to send the mark?
    pub fn hands_over(&self) -> bool {
        self.token.is_some()
    }

    /// The listener tells of what is live again.
    pub fn find_listener(&mut self) {
        (self.unheard, self.is_warned) = (false, false);
    }

    /// Keeps it until the client can be told. False if that is too much.
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

    /// Would notifications be missed if the listener were lost now, with all that it has told?
    pub fn depends_on_listener(&self) -> bool {
        self.unheard || self.has_untold() || !self.live.is_empty()
    }

    /// The listener has to do with it.
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
    fn what_the_client_has_done_itself_is_told_once() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        // The server is the first to tell, twice.
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert!(own.hear_listener(&body(7, "live", "another")));
        assert!(!own.hear_listener(&body(7, "live", "x")));
        assert!(!own.hear_listener(&body(7, "live", "x")));
        assert!(own.hear_listener(&body(7, "live", "x")));
        // The listener is.
        assert!(own.keep(News::Notification(body(7, "live", "x"))));
        assert!(own.keep(News::Gap));
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(own.take_untold(), [News::Gap]);
        assert!(own.hear_listener(&body(7, "live", "x")));
    }

    #[test]
    fn what_nobody_will_tell_is_not_waited_for() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live", "other"]);
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!(from_server(&mut own, "other", true), Hearing::Pass);
        own.give_up_all_but(&names(&["other"]));
        own.live = names(&["live", "other"]);
        assert!(own.hear_listener(&body(7, "live", "x")));
        assert!(!own.hear_listener(&body(7, "other", "x")));
        assert!(own.keep(News::Notification(body(7, "live", "x"))));
        own.lose_listener();
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
    fn what_the_listener_is_to_tell_once_more_has_a_limit_too() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        let long = body(7, "live", &"x".repeat(8000));
        let said = NotificationResponse::decode(&long).unwrap();
        let count = ECHOES_LEN_MAX / long.len() + 10;
        (0..count).for_each(|_| assert_eq!(own.hear_server(&said, true), Hearing::Pass));
        // The first ones are told once, and the others twice.
        let told = (0..count).filter(|_| own.hear_listener(&long)).count();
        assert_eq!((told, own.echoes_len), (10, 0));
    }

    #[test]
    fn not_all_that_is_kept_is_compared_with_what_the_server_tells() {
        let mut own = Listening::new(PoolId(0));
        own.live = names(&["live"]);
        for number in 0..=KEPT_COMPARED_MAX {
            own.keep(News::Notification(body(8, "live", &number.to_string())));
        }
        own.keep(News::Notification(body(7, "live", "x")));
        // It is told twice, and no echo of it is awaited.
        assert_eq!(from_server(&mut own, "live", true), Hearing::Pass);
        assert_eq!((own.echoes.len(), own.untold.len()), (0, KEPT_COMPARED_MAX + 2));
        own.lose_listener();
        assert_eq!(from_server(&mut own, "live", false), Hearing::Drop);
        assert_eq!(own.untold.len(), KEPT_COMPARED_MAX + 3);
    }

    #[test]
    fn not_all_of_its_own_doing_is_compared_with_what_the_listener_tells() {
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
    fn what_is_kept_has_a_limit() {
        let mut own = Listening::new(PoolId(0));
        let long = body(7, "live", &"x".repeat(8000));
        let kept = (0..).take_while(|_| own.keep(News::Notification(long.clone()))).count();
        assert_eq!(kept, UNTOLD_LEN_MAX / long.len());
        own.take_untold();
        assert!(own.keep(News::Notification(long)));
    }
}
