//! Draws the figures of a run as SVG for docs/performance.md, from the JSON that `run` and `real`
//! have written. It measures nothing.

mod canvas;
mod latencies;
mod ratios;
mod seed001;
mod throughput;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

#[derive(Debug, Args)]
pub(crate) struct PlotOptions {
    /// The JSON file that `run` has written
    #[arg(long, value_name = "FILE", default_value = "bench/out/bench.json")]
    bench: PathBuf,
    /// The JSON file that `real` has written
    #[arg(long, value_name = "FILE", default_value = "bench/out/real.json")]
    real: PathBuf,
    /// The folder for the pictures
    #[arg(long, value_name = "FOLDER", default_value = "docs/plots")]
    to: PathBuf,
}

/// # Errors
///
/// When a file cannot be read or is not of this program, or the pictures cannot be written.
pub(crate) fn run(options: &PlotOptions) -> Result<()> {
    let (bench, real) = (read(&options.bench)?, read(&options.real)?);
    fs::create_dir_all(&options.to).with_context(|| options.to.display().to_string())?;
    let pictures = [
        ("ratios.svg", ratios::draw(&bench)?),
        ("throughput.svg", throughput::draw(&real)?),
        ("latency.svg", latencies::draw(&real)?),
        ("seed001.svg", seed001::draw(&real)?),
    ];
    for (name, picture) in pictures {
        let path = options.to.join(name);
        let Some(picture) = picture else {
            println!("{} left as it is: no row of it was measured", path.display());
            continue;
        };
        fs::write(&path, picture).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn rows(document: &Value) -> Result<&Vec<Value>> {
    document["rows"].as_array().context("no rows: this is not what `run` or `real` writes")
}

/// Returns the text under a key, or an empty one if there is none.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the chosen figure of each measurement that has it.
fn figures(measurements: &Value, figure: impl Fn(&Value) -> &Value) -> Vec<f64> {
    let measurements = measurements.as_array().map_or(&[][..], Vec::as_slice);
    measurements.iter().filter_map(|one| figure(one).as_f64()).collect()
}

/// Returns the labels of the three sides.
fn labels(real: &Value) -> [String; 3] {
    ["direct", text(real, "pgbouncer"), text(real, "weir")].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_picture_without_rows_is_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("weir-bench-plot-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(name);
        let nothing = json!({ "rows": [{ "row": "prepared", "ratio": [null] }] });
        fs::write(file("bench.json"), nothing.to_string()).unwrap();
        fs::write(file("real.json"), json!({ "rows": [row("tpcb")] }).to_string()).unwrap();
        let pictures = ["ratios.svg", "throughput.svg", "latency.svg", "seed001.svg"];
        for picture in pictures {
            fs::write(file(picture), "earlier").unwrap();
        }
        let (bench, real) = (file("bench.json"), file("real.json"));
        run(&PlotOptions { bench, real, to: folder.clone() }).unwrap();
        let is_new = pictures.map(|name| fs::read_to_string(file(name)).unwrap() != "earlier");
        assert_eq!(is_new, [false, true, false, false]);
        fs::remove_dir_all(folder).unwrap();
    }

    fn row(name: &str) -> Value {
        json!({
            "row": name, "direct": [], "pgbouncer": [{ "tps": 10.0 }], "weir": [{ "tps": 20.0 }],
            "all_rounds": { "weir": { "p50_ms": 1.0, "p99_ms": 3.0, "p999_ms": 6.0 } },
        })
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
        let ratios = ratios::draw(&bench).unwrap().expect("there is a row of it");
        for shown in ["Weir 2 by PgBouncer 1", "idle (2)", "0.50", "0.25"] {
            assert!(ratios.contains(shown), "{shown}");
        }
        assert!(!ratios.contains("prepared"), "there is nothing to compare");

        let mut seed = row("seed001-tls-10");
        seed["by_direct"] = json!({ "seed": 0.69, "pgbouncer": 0.5, "weir": 0.7 });
        let rows = [row("tpcb"), row("latency-2000"), row("fleet-held"), seed];
        let real = json!({ "how": "by hand", "rows": rows });
        let throughput = throughput::draw(&real).unwrap().expect("there is a row of it");
        assert!(throughput.contains("tpcb"));
        for other in ["latency-2000", "fleet-held", "seed001-tls-10"] {
            assert!(!throughput.contains(other), "{other}");
        }
        let latency = latencies::draw(&real).unwrap().expect("there is a row of it");
        assert!(latency.contains("latency-2000 p99.9") && !latency.contains("tpcb"));
        let seed001 = seed001::draw(&real).unwrap().expect("there is a row of it");
        for shown in ["10 clients, TLS", "0.69", "0.50", "0.70"] {
            assert!(seed001.contains(shown), "{shown}");
        }
        assert!(ratios::draw(&json!({})).is_err());
    }
}
