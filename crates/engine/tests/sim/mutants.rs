//! Shows that the checks can fail. Each engine and each shell that is broken on purpose is noticed
//! within the seeds of an ordinary run, by the check that its entry names. The sound engine passes
//! all these seeds.
//!
//! This is a test of the crate `weir-mutants`, whose library is the engine with all mutants woven
//! in. The simulator is the same. The list is in `crates/mutants/src/list.rs`.

mod backend;
mod bus;
mod client;
mod exchange;
mod net;
mod noticed;
mod reference;
mod rng;
mod router;
mod run;
mod sabotage;
mod schema;
mod script;
mod settings;
mod setup;
mod sql;
mod timings;
#[allow(dead_code, reason = "the other tests need the rest")]
mod world;

use std::fmt::Write as _;

use engine::{list, mutant};

use run::{run, seeds};
use sabotage::Sabotage;

/// The minimum number of seeds that must notice each mutant.
const SEEDS_MIN: usize = 3;

/// Names of the checks in the list, with words that identify each check's report.
const CHECKS: [(&str, &[&str]); 22] = [
    (
        "answers",
        &[
            "a direct connection gives",
            "unexpected during login",
            "welcomed with",
            "recovered with",
        ],
    ),
    (
        "cancels",
        &[
            "canceled ",
            "answer to a cancel",
            "the answer to an SSLRequest",
            "a malformed cancel request",
        ],
    ),
    (
        "causes",
        &["was thrown out without a cause", "thrown out: ", "connection ended by the pooler"],
    ),
    ("copies", &["during a copy"]),
    (
        "effects",
        &[
            "took effect twice",
            "told to be rolled back",
            "a BEGIN was sent for the",
            "was acknowledged and never done",
        ],
    ),
    ("intrusions", &["panic: a message of ours into a client's conversation"]),
    ("keys", &["panic: invalid key"]),
    ("leaks", &["server sockets are open, the pools count"]),
    ("limits", &[" servers in ", "seats are taken by", "turns are taken by", " are allowed"]),
    ("memory", &["bytes kept for", "bytes held of", " statements on server"]),
    ("news", &["told of ", "told that notifications were lost", "told within a transaction"]),
    ("order", &["was served before"]),
    (
        "orders",
        &[
            "of a closed pool",
            "which is obsolete",
            "stays although",
            "let in ",
            "nobody opens a server",
        ],
    ),
    ("places", &["was for the writer"]),
    ("renewals", &["was refused and then done"]),
    ("repeats", &["panic: a Bind is held back again and again"]),
    ("rest", &["holds a server for nothing", "something is left behind"]),
    (
        "sessions",
        &["came into a transaction of", "found the session of", "was served after an error of"],
    ),
    ("sockets", &["which is free", "closed twice", "was not free", "attached twice", "detached "]),
    ("spares", &["spare servers in "]),
    ("timings", &["checkpoints "]),
    ("waits", &["nothing happens any more", "it never ends"]),
];

fn check_of(report: &str) -> &'static str {
    let is_known = |(_, words): &&(&str, &[&str])| words.iter().any(|words| report.contains(words));
    CHECKS.iter().find(is_known).map_or("unknown", |(name, _)| name)
}

fn caught_mutant(number: usize) {
    let broken = list::mutants().nth(number).expect("the build script counts as we do");
    caught(broken.name, broken.noticed_by, |seed| {
        mutant::set(Some(number));
        let end = run(seed, None, false);
        mutant::set(None);
        end.err()
    });
}

fn caught_harm(harm: Sabotage, noticed_by: &str) {
    caught(&format!("{harm:?}"), noticed_by, |seed| run(seed, Some(harm), false).err());
}

/// Requires that enough seeds end with a report of that check.
fn caught(name: &str, noticed_by: &str, run: impl Fn(u64) -> Option<String>) {
    assert!(
        CHECKS.iter().any(|(check, _)| *check == noticed_by),
        "{name}: CHECKS has no {noticed_by:?}"
    );
    let mut seen = String::new();
    let mut noticed = Vec::new();
    for seed in noticed::in_order(name, seeds()) {
        let Some(report) = run(seed) else { continue };
        let check = check_of(&report);
        let _ = writeln!(seen, "seed {seed}, {check}: {}", report.lines().next().unwrap_or(""));
        if check == noticed_by {
            noticed.push(seed);
        }
        if noticed.len() == SEEDS_MIN {
            print!("{name} was noticed:\n{seen}");
            return noticed::note(name, &noticed);
        }
    }
    let some: Vec<&str> = seen.lines().take(20).collect();
    panic!(
        "{name}: {SEEDS_MIN} seeds must notice it by {noticed_by:?}, {} did. All {} reports, the \
         first of them:\n{}",
        noticed.len(),
        seen.lines().count(),
        some.join("\n")
    );
}

/// One test per mutant, with the mutant's name.
#[allow(non_snake_case, reason = "so that the name of a mutant is the name of its test")]
mod mutants {
    include!(concat!(env!("OUT_DIR"), "/tests.rs"));
}

/// Faults outside the engine.
macro_rules! harms {
    ($($harm:ident: $noticed_by:literal;)+) => {
        #[allow(non_snake_case, reason = "as above")]
        mod harms {
            $(#[test]
            fn $harm() {
                crate::caught_harm(crate::Sabotage::$harm, $noticed_by);
            })+
        }
    };
}

harms! {
    LoseMail: "waits";
    ForgetWaiter: "waits";
    DropResume: "waits";
    SwapStatement: "answers";
    Misdeliver: "answers";
    ReorderReplies: "answers";
    LoseRequest: "waits";
    SwapServers: "answers";
    HastyCancel: "cancels";
    SkipReset: "answers";
    KeepSocket: "leaks";
    HideEnd: "causes";
}

/// `UPDATE_DOCS=1` writes the table.
#[test]
fn the_table_in_the_documents_is_made_of_the_list() {
    const HEAD: &str = "| mutant | what is wrong | seen in | noticed by |\n|---|---|---|---|\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let mut table = HEAD.to_owned();
    for list::Mutant { name, wrong, seen_in, noticed_by, .. } in list::mutants() {
        let _ = writeln!(table, "| `{name}` | {wrong} | {seen_in} | {noticed_by} |");
    }
    let text = std::fs::read_to_string(path).expect("the documents are there");
    let from = text.find(HEAD).expect("the table has this head");
    let to = text[from..].find("\n\n").map_or(text.len(), |len| from + len + 1);
    if text[from..to] != table && std::env::var_os("UPDATE_DOCS").is_some() {
        let text = [&text[..from], &table, &text[to..]].concat();
        std::fs::write(path, text).expect("the documents can be written");
        return;
    }
    assert!(text[from..to] == table, "run UPDATE_DOCS=1 cargo test -p weir-mutants the_table");
}
