//! Any bytes of a client of PCP.
//!
//! The first byte chooses the settings, the second is a seed for cuts, and the rest are the client's
//! bytes. Answers must be whole messages and must not depend on the cuts. Nobody changes the process
//! without a login, and nobody who may only look.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use admin::{Pcp, PcpNext};

use crate::console::Process;
use crate::rng::Rng;

const LEN_MAX: usize = 10_000;
/// The digests of the users' passwords for the salt that all sessions get.
const LOGINS: [&[u8]; 2] = [
    b"M\0\0\0\x04R\0\0\0\x2badmin\x005ad3a907767508122e1584e8e092a7d5\0",
    b"M\0\0\0\x04R\0\0\0\x2cviewer\x00809c5c497ecdfc5ecb234a6c3832e8b3\0",
];

pub fn pcp(data: &[u8]) {
    let [settings, seed, bytes @ ..] = data else { return };
    let bytes = &bytes[..bytes.len().min(LEN_MAX)];
    let is_viewer = settings & 4 != 0;
    let login: &[u8] = if settings & 1 != 0 { LOGINS[usize::from(is_viewer)] } else { b"" };
    let bytes = [login, bytes].concat();
    let fails = settings & 2 != 0;
    let whole = play(&bytes, fails, None);
    let cut = play(&bytes, fails, Some(Rng::new(u64::from(*seed))));
    assert_eq!(whole.out, cut.out, "cuts make a difference");
    assert_eq!(whole.changes, cut.changes, "cuts make a difference");
    assert!(!is_viewer || whole.changes == 0, "somebody without the right changed something");
}

struct Outcome {
    out: Vec<u8>,
    /// Requests that have changed something.
    changes: usize,
}

fn play(bytes: &[u8], fails: bool, mut cuts: Option<Rng>) -> Outcome {
    let process = Arc::new(Process { fails, changes: AtomicUsize::new(0) });
    let mut pcp = Pcp::new(process.clone(), || [1, 2, 3, 4]);
    let (mut out, mut rest) = (Vec::new(), bytes);
    loop {
        let answered = {
            // The process never blocks.
            let answering = pin!(pcp.answer(&mut out));
            match answering.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(next) => next,
                Poll::Pending => panic!("PCP waits for nothing"),
            }
        };
        let changes = process.changes.load(Ordering::Relaxed);
        assert!(pcp.is_logged_in() || changes == 0, "somebody changed something without a login");
        match answered {
            PcpNext::GoOn => {}
            PcpNext::Receive if rest.is_empty() => break,
            PcpNext::Receive => {
                let len = cuts.as_mut().map_or(rest.len(), |cuts| 1 + cuts.below(rest.len()));
                let (now, later) = rest.split_at(len);
                pcp.receive(now);
                rest = later;
            }
            PcpNext::Shutdown(_) => {
                process.changes.fetch_add(1, Ordering::Relaxed);
                break;
            }
            PcpNext::LogIn if pcp.log_in(&mut out) => {}
            PcpNext::LogIn | PcpNext::Close => break,
        }
    }
    check_whole(&out);
    Outcome { out, changes: process.changes.load(Ordering::Relaxed) }
}

fn check_whole(mut out: &[u8]) {
    while let Some((header, rest)) = out.split_first_chunk::<5>() {
        let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        out = rest.get(len - 4..).expect("a whole message");
    }
    assert!(out.is_empty(), "part of a message: {}", out.escape_ascii());
}
