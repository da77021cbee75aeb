//! The pictures that `bench/draw.py` makes of figures and of stacks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const STACKS: &str = "\
\tffffffff81e2eae2 __sys_sendto ([kernel.kallsyms])
\t          10aba4 __send (/usr/lib/libc.so.6)
\t          74ed1f <proxy::Conn as Io>::send (fast) (/run/pooler-1)
\t          78b20a main (/run/pooler-1)

\t          74ed20 [unknown] (/run/pooler-1)
\t          74ed30 [unknown] (/run/pooler-1)
\t          78b20a main (/run/pooler-1)

\t          109c1a [unknown] (/usr/lib/libevent-2.1.so.7)
\t          78b20a main (/run/pooler-1)

";

/// Runs the program with the arguments and the file as its standard input, in a new folder. The
/// arguments begin there. Returns the text of its output.
fn draw(folder: &Path, arguments: &[&str], input: &str) -> String {
    let file = folder.join("input");
    fs::write(&file, input).unwrap();
    let mut draw = Command::new("python3");
    draw.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/draw.py")).args(arguments);
    let output = draw.current_dir(folder).stdin(File::open(file).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-bench-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Draws the figures and returns the pictures, of which those without rows are as before.
    fn plot(&self, bench: &Value, real: &Value) -> [String; 4] {
        let names = ["ratios.svg", "throughput.svg", "latency.svg", "proposal.svg"];
        for name in names {
            fs::write(self.0.join(name), "earlier").unwrap();
        }
        fs::write(self.0.join("bench.json"), bench.to_string()).unwrap();
        fs::write(self.0.join("real.json"), real.to_string()).unwrap();
        draw(&self.0, &["plot", "--bench", "bench.json", "--real", "real.json", "--to", "."], "");
        names.map(|name| fs::read_to_string(self.0.join(name)).unwrap())
    }

    fn flame(&self, title: &str, stacks: &str) -> String {
        draw(&self.0, &["flame", "/run/pooler-1", "Weir 1", title, "flame.svg"], stacks);
        fs::read_to_string(self.0.join("flame.svg")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn row(name: &str) -> Value {
    json!({
        "row": name, "direct": [], "pgbouncer": [{ "tps": 10.0 }], "weir": [{ "tps": 20.0 }],
        "all_rounds": { "weir": { "p50_ms": 1.0, "p99_ms": 3.0, "p999_ms": 6.0 } },
    })
}

#[track_caller]
fn assert_shows(picture: &str, shown: &[&str], hidden: &[&str]) {
    for text in shown {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    for text in hidden {
        assert!(!picture.contains(text), "{text} in {picture}");
    }
}

#[test]
fn a_picture_without_rows_is_not_overwritten() {
    let bench = json!({ "rows": [{ "row": "prepared", "ratio": [null] }] });
    let real = json!({ "how": "by hand", "rows": [row("tpcb")] });
    let pictures = Folder::new("rows").plot(&bench, &real);
    assert_eq!(pictures.map(|picture| picture != "earlier"), [false, true, false, false]);
}

#[test]
fn each_picture_shows_its_rows() {
    let side = |figures: [f64; 2]| json!({ "samples": [{ "figures": figures }] });
    let bench = json!({
        "how": "by hand", "pgbouncer": "PgBouncer 1", "weir": "Weir 2",
        "rows": [
            { "row": "idle", "ratio": [0.5, 0.25], "pgbouncer": side([4.0, 8.0]), "weir": side([2.0, 2.0]) },
            { "row": "prepared", "ratio": [null], "pgbouncer": { "samples": [] }, "weir": side([1.0, 1.0]) },
        ],
    });
    let mut proposed = row("proposal-tls-10");
    proposed["by_direct"] = json!({ "proposed": 0.69, "pgbouncer": 0.5, "weir": 0.7 });
    let rows = [row("tpcb"), row("latency-2000"), row("fleet-held"), proposed];
    let real = json!({ "how": "by hand", "rows": rows });
    let [ratios, throughput, latency, proposal] = Folder::new("each").plot(&bench, &real);
    let shown = ["Weir 2 by PgBouncer 1", "by hand", "idle (2)", "0.50", "0.25"];
    assert_shows(&ratios, &shown, &["prepared"]);
    assert_shows(&throughput, &["tpcb", "20<"], &["latency-2000", "fleet-held", "10 clients"]);
    assert_shows(&latency, &["latency-2000 p99.9"], &["tpcb"]);
    assert_shows(&proposal, &["10 clients, TLS", "0.69", "0.50", "0.70"], &["tpcb"]);
}

#[test]
fn a_flame_graph_shows_shares_and_leaves_out_narrow_frames() {
    let folder = Folder::new("flame");
    let picture = folder.flame("Weir <1>", STACKS);
    let shown = [
        "Weir &lt;1&gt;",
        "kernel 33 %",
        "the pooler 33 %",
        "its libraries 33 %",
        "<title>main 100.0 %",
        "<title>&lt;proxy::Conn as Io&gt;::send (fast) 33.3 %",
        "<title>[Weir 1] 33.3 %",
        "<title>[libevent-2.1.so.7] 33.3 %",
    ];
    assert_shows(&picture, &shown, &["script"]);
    let many = STACKS.repeat(1_000) + "\t1 lost_in_the_crowd (/run/pooler-1)\n\n";
    assert_shows(&folder.flame("", &many), &["__send"], &["lost_in_the_crowd"]);
    folder.flame("", "");
}
