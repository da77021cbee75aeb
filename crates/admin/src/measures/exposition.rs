//! The text formats of a page: Prometheus' and OpenMetrics.

use std::fmt::Write;

use super::{Kind, Label, Page, Value};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextForm {
    Prometheus,
    OpenMetrics,
}

/// A page of lines.
pub(super) struct Lines {
    form: TextForm,
    text: String,
}

impl Lines {
    pub(super) fn new(form: TextForm) -> Self {
        Self { form, text: String::new() }
    }
}

impl Page for Lines {
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        // In OpenMetrics the kind's own ending belongs to the samples.
        let name = match (self.form, kind) {
            (TextForm::OpenMetrics, Kind::Counter) => name.trim_end_matches("_total"),
            (TextForm::OpenMetrics, Kind::Info) => name.trim_end_matches("_info"),
            (TextForm::OpenMetrics, Kind::Gauge | Kind::Histogram) | (TextForm::Prometheus, _) => {
                name
            }
        };
        let kind = match (self.form, kind) {
            (TextForm::Prometheus, Kind::Info) => "gauge",
            _ => kind.word(),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: Value<'_>) {
        let labels = &*text_of(labels);
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
                for (bound, count) in histogram.up_to() {
                    let bound = le(bound);
                    let _ =
                        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
                }
                let (all, sum, labels_alone) = (histogram.count(), seconds(sum), in_braces(labels));
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {all}");
                writeln!(text, "{name}_sum{labels_alone} {sum}\n{name}_count{labels_alone} {all}")
            }
        };
    }

    fn end(mut self: Box<Self>) -> Vec<u8> {
        if self.form == TextForm::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text.into_bytes()
    }
}

/// The labels of a sample, without braces.
fn text_of(labels: &[Label<'_>]) -> String {
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

/// Returns a bound as Prometheus writes it, so that a label is the same from each form of page.
fn le(seconds: f64) -> String {
    if seconds >= 1e-4 {
        format!("{seconds:?}")
    } else {
        format!("{seconds:e}").replace("e-", "e-0")
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use engine::histogram::Histogram;

    use super::*;

    fn page(form: TextForm, write: impl Fn(&mut Lines)) -> String {
        let mut page = Box::new(Lines::new(form));
        write(&mut page);
        String::from_utf8(page.end()).expect("a text")
    }

    #[test]
    fn openmetrics_takes_the_ending_from_the_name_of_the_family() {
        let write = |page: &mut Lines| {
            page.begin("x_total", Kind::Counter, "Help.");
            page.sample("x_total", &[], Value::Number(7));
            page.begin("y_info", Kind::Info, "Help.");
            page.sample("y_info", &[("a", "b".into())], Value::Number(1));
        };
        assert_eq!(
            page(TextForm::Prometheus, write),
            "# HELP x_total Help.\n# TYPE x_total counter\nx_total 7\n\
             # HELP y_info Help.\n# TYPE y_info gauge\ny_info{a=\"b\"} 1\n"
        );
        assert_eq!(
            page(TextForm::OpenMetrics, write),
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
        let text = page(TextForm::Prometheus, |page| {
            page.sample("x", &[("a", "b".into())], Value::Durations(&histogram, 40_000_101));
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "x_bucket{a=\"b\",le=\"6.103515625e-05\"} 1");
        assert_eq!(lines[1], "x_bucket{a=\"b\",le=\"0.0001220703125\"} 2");
        assert_eq!(lines[19], "x_bucket{a=\"b\",le=\"32.0\"} 2");
        assert_eq!(
            lines[20..],
            ["x_bucket{a=\"b\",le=\"+Inf\"} 3", "x_sum{a=\"b\"} 40.000101", "x_count{a=\"b\"} 3"]
        );
    }

    #[test]
    fn hostile_names_stay_within_their_label() {
        let hostile = "a\"} 1\nb\\";
        let text = text_of(&[("database", hostile.into()), ("user", "u".into())]);
        assert_eq!(text, r#"database="a\"} 1\nb\\",user="u""#);
    }
}
