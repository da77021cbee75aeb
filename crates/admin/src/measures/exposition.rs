//! The text formats of a page: Prometheus' and OpenMetrics.

use std::{borrow::Cow, fmt::Write};

use super::{Kind, Value};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

/// A page as it is written.
pub(super) struct Page {
    form: Exposition,
    text: String,
}

impl Page {
    pub(super) fn new(form: Exposition) -> Self {
        Self { form, text: String::new() }
    }

    /// The samples of this measure follow.
    pub(super) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        // In OpenMetrics the kind's own ending belongs to the samples.
        let name = match (self.form, kind) {
            (Exposition::OpenMetrics, Kind::Counter) => name.trim_end_matches("_total"),
            (Exposition::OpenMetrics, Kind::Info) => name.trim_end_matches("_info"),
            (Exposition::OpenMetrics, Kind::Gauge | Kind::Histogram) | (Exposition::Text, _) => {
                name
            }
        };
        let kind = match (self.form, kind) {
            (Exposition::Text, Kind::Info) => "gauge",
            _ => kind.word(),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `labels` are as [`labels`] makes them.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: Value<'_>) {
        let in_braces = |labels: &str| match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let text = &mut self.text;
        let _ = match value {
            Value::Number(number) => writeln!(text, "{name}{} {number}", in_braces(labels)),
            Value::Seconds(micros) => {
                writeln!(text, "{name}{} {}", in_braces(labels), seconds(micros))
            }
            Value::Durations(histogram, sum) => {
                let comma = if labels.is_empty() { "" } else { "," };
                for (bound, count) in histogram.below() {
                    let bound = seconds(bound);
                    let _ =
                        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
                }
                let (all, sum, labels_alone) = (histogram.count(), seconds(sum), in_braces(labels));
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {all}");
                writeln!(text, "{name}_sum{labels_alone} {sum}\n{name}_count{labels_alone} {all}")
            }
        };
    }

    pub(super) fn end(mut self) -> String {
        if self.form == Exposition::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The labels of a sample, without braces.
pub(super) fn labels<'a>(labels: impl Iterator<Item = (&'static str, Cow<'a, str>)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use engine::histogram::Histogram;

    use super::*;

    fn page(form: Exposition, write: impl Fn(&mut Page)) -> String {
        let mut page = Page::new(form);
        write(&mut page);
        page.end()
    }

    #[test]
    fn openmetrics_takes_the_ending_from_the_name_of_the_family() {
        let write = |page: &mut Page| {
            page.begin("x_total", Kind::Counter, "Help.");
            page.sample("x_total", "", Value::Number(7));
            page.begin("y_info", Kind::Info, "Help.");
            page.sample("y_info", "a=\"b\"", Value::Number(1));
        };
        assert_eq!(
            page(Exposition::Text, write),
            "# HELP x_total Help.\n# TYPE x_total counter\nx_total 7\n\
             # HELP y_info Help.\n# TYPE y_info gauge\ny_info{a=\"b\"} 1\n"
        );
        assert_eq!(
            page(Exposition::OpenMetrics, write),
            "# HELP x Help.\n# TYPE x counter\nx_total 7\n\
             # HELP y Help.\n# TYPE y info\ny_info{a=\"b\"} 1\n# EOF\n"
        );
    }

    #[test]
    fn a_histogram_is_cumulative_and_in_seconds() {
        let mut histogram = Histogram::default();
        for micros in [1, 100, 40_000_000] {
            histogram.record(micros);
        }
        let text = page(Exposition::Text, |page| {
            page.sample("x", "a=\"b\"", Value::Durations(&histogram, 40_000_101));
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "x_bucket{a=\"b\",le=\"0.000064\"} 1");
        assert_eq!(lines[1], "x_bucket{a=\"b\",le=\"0.000128\"} 2");
        assert_eq!(lines[19], "x_bucket{a=\"b\",le=\"33.554432\"} 2");
        assert_eq!(
            lines[20..],
            ["x_bucket{a=\"b\",le=\"+Inf\"} 3", "x_sum{a=\"b\"} 40.000101", "x_count{a=\"b\"} 3"]
        );
    }

    #[test]
    fn hostile_names_stay_within_their_label() {
        let hostile = "a\"} 1\nb\\";
        let text = labels([("database", hostile.into()), ("user", "u".into())].into_iter());
        assert_eq!(text, r#"database="a\"} 1\nb\\",user="u""#);
    }
}
