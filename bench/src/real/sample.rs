//! One measurement of one side.

use serde_json::{Value, json};

use super::fact::Facts;
use super::generator::Figures;

/// One measurement of one side.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) figures: Figures,
    /// The pooler's CPU time for a transaction, in microseconds.
    pub(super) cpu_us: Option<f64>,
    pub(super) facts: Facts,
    /// Lines of text that are shown with the figures.
    pub(super) notes: Vec<String>,
}

impl Sample {
    pub(super) fn new(figures: Figures, cpu_us: Option<f64>) -> Self {
        Self { cpu_us, figures, facts: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn to_json(&self) -> Value {
        let figures = &self.figures;
        let mut value = json!({
            "transactions": figures.transactions,
            "tps": figures.tps,
            "mean_ms": figures.mean,
            "p50_ms": figures.p50,
            "p99_ms": figures.p99,
            "p999_ms": figures.p999,
            "pooler_cpu_us": self.cpu_us,
        });
        for (fact, figure) in &self.facts {
            value[fact.key] = json!(figure);
        }
        if !self.notes.is_empty() {
            value["notes"] = json!(self.notes);
        }
        value
    }
}
