//! The form of a page that has native histograms: Prometheus' messages of protobuf (package
//! `io.prometheus.client`), each behind its length. Fields that Weir does not use are left out.
//!
//! A histogram has its ordinary buckets as well, for scrapers and queries that know no others.

use engine::histogram::Histogram;
use prost::Message;

use super::{Kind, Label, Page, Value};

/// The bounds of native buckets are powers of two.
const SCHEMA: i32 = 0;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Buckets>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `Gauge` and `Counter`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

/// `Histogram`
#[derive(Clone, PartialEq, Message)]
struct Buckets {
    #[prost(uint64, optional, tag = "1")]
    count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    ordinary: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    /// Shorter durations are in no native bucket, but in `zero_count`.
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<BucketSpan>,
    /// The count of each native bucket, less that of the one before.
    #[prost(sint64, repeated, tag = "13")]
    deltas: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

/// Native buckets without a gap. The offset is that from the end of the span before.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// A page of families, of which the last one is not encoded yet.
#[derive(Default)]
pub(super) struct Families {
    bytes: Vec<u8>,
    last: MetricFamily,
}

impl Families {
    /// A family without a sample is left out.
    fn close(&mut self) {
        let last = std::mem::take(&mut self.last);
        if !last.metrics.is_empty() {
            self.bytes.extend(last.encode_length_delimited_to_vec());
        }
    }
}

impl Page for Families {
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        self.close();
        let kind = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Info => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        self.last = MetricFamily {
            name: name.to_owned(),
            help: help.to_owned(),
            kind: Some(kind.into()),
            metrics: Vec::new(),
        };
    }

    fn sample(&mut self, _: &str, labels: &[Label<'_>], value: Value<'_>) {
        let pair = |(name, value): &Label<'_>| LabelPair {
            name: (*name).into(),
            value: value.to_string(),
        };
        let mut metric = Metric { labels: labels.iter().map(pair).collect(), ..Metric::default() };
        let number = match value {
            Value::Number(number) => number as f64,
            Value::Seconds(micros) => seconds(micros),
            Value::Durations(histogram, sum) => {
                metric.histogram = Some(buckets(histogram, sum));
                return self.last.metrics.push(metric);
            }
        };
        let number = Some(Number { value: Some(number) });
        match self.last.kind() {
            MetricType::Counter => metric.counter = number,
            MetricType::Gauge | MetricType::Histogram => metric.gauge = number,
        }
        self.last.metrics.push(metric);
    }

    fn end(mut self: Box<Self>) -> Vec<u8> {
        self.close();
        self.bytes
    }
}

fn buckets(histogram: &Histogram, sum: u64) -> Buckets {
    let ordinary = histogram
        .up_to()
        .map(|(bound, count)| Bucket { cumulative_count: Some(count), upper_bound: Some(bound) });
    let all =
        Bucket { cumulative_count: Some(histogram.count()), upper_bound: Some(f64::INFINITY) };
    let (zero_threshold, zero_count) = histogram.shortest();
    let (spans, deltas) = native(histogram);
    Buckets {
        count: Some(histogram.count()),
        sum: Some(seconds(sum)),
        ordinary: ordinary.chain([all]).collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(zero_threshold),
        zero_count: Some(zero_count),
        spans,
        deltas,
    }
}

/// The native buckets that have durations.
fn native(histogram: &Histogram) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, Vec<i64>) = Default::default();
    // The bucket behind the last one, and the count of that.
    let (mut behind, mut before) = (0, 0);
    for (exponent, count) in histogram.longer() {
        match spans.last_mut() {
            Some(span) if exponent == behind => span.length = span.length.map(|len| len + 1),
            Some(_) | None => {
                spans.push(BucketSpan { offset: Some(exponent - behind), length: Some(1) });
            }
        }
        deltas.push(count.cast_signed() - before);
        (behind, before) = (exponent + 1, count.cast_signed());
    }
    (spans, deltas)
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|micros| histogram.record(*micros));
        histogram
    }

    fn span(offset: i32, length: u32) -> BucketSpan {
        BucketSpan { offset: Some(offset), length: Some(length) }
    }

    #[test]
    fn native_buckets_without_durations_are_left_out() {
        assert_eq!(native(&of(&[])), (vec![], vec![]));
        assert_eq!(native(&of(&[0, 1])), (vec![], vec![]), "these are in zero_count");
        // 1 s is in bucket 0, 3 s in bucket 2, 5 s and 6 s in bucket 3.
        let (spans, deltas) = native(&of(&[1_000_000, 3_000_000, 5_000_000, 6_000_000]));
        assert_eq!(spans, [span(0, 1), span(1, 2)]);
        assert_eq!(deltas, [1, 0, 1]);
        // 500 ms is in bucket -1, 100 ms in bucket -3.
        let (spans, deltas) = native(&of(&[100_000, 100_000, 500_000, 1_000_000]));
        assert_eq!(spans, [span(-3, 1), span(1, 2)]);
        assert_eq!(deltas, [2, -1, 0]);
    }

    #[test]
    fn a_page_is_families_behind_their_lengths() {
        let mut page = Box::<Families>::default();
        page.begin("x_total", Kind::Counter, "Help.");
        page.sample("x_total", &[("a", "b".into())], Value::Number(7));
        page.begin("empty", Kind::Gauge, "Help.");
        page.begin("y", Kind::Info, "Help.");
        page.sample("y", &[], Value::Number(1));
        let page = page.end();
        // Field 1, 2 and 3 of the family, then its metric: a label and a counter of 7.0.
        let first = b"\x27\x0a\x07x_total\x12\x05Help.\x18\x00\
            \x22\x13\x0a\x06\x0a\x01a\x12\x01b\x1a\x09\x09\0\0\0\0\0\0\x1c\x40";
        let mut rest = page.strip_prefix(&first[..]).expect("these bytes");
        let two = MetricFamily::decode_length_delimited(&mut rest).expect("a family");
        assert_eq!((&*two.name, two.kind(), rest.len()), ("y", MetricType::Gauge, 0));
    }
}
