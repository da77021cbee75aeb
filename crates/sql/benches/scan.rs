//! The cost of scanning a text, and to find it in the cache: `cargo bench -p weir-sql`.
//!
//! Of several rounds the fastest counts: what disturbs only makes slower.

use std::hint::black_box;
use std::time::Instant;

use weir_sql::{Cache, scan, statements};

const ROUNDS: u32 = 30;
const CALLS: u32 = 20_000;

const POINT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;";

const INSERT: &str = "INSERT INTO events (id, kind, payload, created_at) VALUES ($1, $2, $3, now()) \
     ON CONFLICT (id) DO UPDATE SET payload = excluded.payload RETURNING id";

const ORM: &str = "SELECT \"users\".\"id\", \"users\".\"email\", \"users\".\"name\", \
     \"users\".\"created_at\", COUNT(\"orders\".\"id\") AS order_count, \
     COALESCE(SUM(orders.total), 0) AS total FROM \"users\" LEFT OUTER JOIN \"orders\" ON \
     \"orders\".\"user_id\" = \"users\".\"id\" WHERE \"users\".\"active\" = true AND \
     \"users\".\"email\" LIKE '%@example.org' AND \"users\".\"tenant_id\" = $1 GROUP BY \
     \"users\".\"id\" ORDER BY \"users\".\"created_at\" DESC LIMIT 50 OFFSET 0";

const TWO_HUNDRED: &str = "SELECT o.id, o.placed_at, o.total, c.name, c.city FROM orders o JOIN \
     customers c ON c.id = o.customer_id WHERE o.state = 'open' AND o.placed_at > $1 AND c.city = \
     $2 ORDER BY o.placed_at DESC LIMIT 20";

fn main() {
    println!("{:<28} {:>6} {:>10} {:>8}", "", "bytes", "ns", "MB/s");
    let quoted = format!("INSERT INTO t VALUES ('{}')", "lorem ipsum ".repeat(5_000));
    for (name, text) in [
        ("point select", POINT),
        ("insert", INSERT),
        ("ORM select", ORM),
        ("60 KB string", &quoted),
    ] {
        row(name, text, || scan(black_box(text.as_bytes()), true));
    }
    for (name, text) in [("point select", POINT), ("ORM select", ORM)] {
        row(&format!("{name}, statements"), text, || {
            statements(black_box(text.as_bytes()), true).count()
        });
    }
    let mut cache = Cache::new(42, 1_024);
    for (name, text) in [("point select", POINT), ("select", TWO_HUNDRED), ("ORM select", ORM)] {
        row(&format!("{name}, cache hit"), text, || cache.scan(black_box(text.as_bytes())));
    }
}

fn row<T>(name: &str, text: &str, mut call: impl FnMut() -> T) {
    let calls = (CALLS / (1 + text.len() as u32 / 500)).max(20);
    let fastest = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..calls {
                black_box(call());
            }
            begin.elapsed()
        })
        .min()
        .expect("there are rounds");
    let ns = fastest.as_nanos() as f64 / f64::from(calls);
    println!("{name:<28} {:>6} {ns:>10.0} {:>8.0}", text.len(), text.len() as f64 * 1e3 / ns);
}
