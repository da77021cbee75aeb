//! Weaves mutants into a copy of the engine: `source` becomes `if crate::mutant::is(N) { broken }
//! else { source }`.

use crate::list::{Change, SOURCE, mutants};

/// A place in a file, and the code there if the mutant with that number is active.
struct Break {
    from: usize,
    to: usize,
    number: usize,
    broken: &'static str,
}

/// Returns the file with all its mutants. Changes that do not fit are noted in `misfits`.
pub(crate) fn weave(file: &str, source: &str, misfits: &mut [Option<String>]) -> String {
    let mut breaks = Vec::new();
    for (number, mutant) in mutants().enumerate() {
        for change in mutant.changes.iter().filter(|change| change.file == file) {
            match find(source, change) {
                Ok((from, to)) => breaks.push(Break { from, to, number, broken: change.broken }),
                Err(count) => {
                    misfits[number] = Some(format!(
                        "mutant {}: its source occurs {count} times in {SOURCE}/{file}, not once. \
                         Mend the entry in the list: say what the source is now, with as much \
                         around it as makes it unique",
                        mutant.name
                    ));
                }
            }
        }
    }
    // Of two changes at the same place, the wider one comes first and contains the other.
    breaks.sort_by_key(|one| (one.from, std::cmp::Reverse(one.to), one.number));
    write(source, 0, source.len(), &mut breaks.into_iter().peekable())
}

fn write(
    source: &str,
    from: usize,
    to: usize,
    breaks: &mut std::iter::Peekable<impl Iterator<Item = Break>>,
) -> String {
    let mut out = String::new();
    let mut at = from;
    while let Some(next) = breaks.next_if(|next| next.from >= at && next.to <= to) {
        out.push_str(&source[at..next.from]);
        let inner = write(source, next.from, next.to, breaks);
        let text = format!(
            "if crate::mutant::is({}) {{ {} }} else {{ {inner} }}",
            next.number, next.broken
        );
        let is_statement = source[..next.to].ends_with([';', '}']);
        out.push_str(&if is_statement { text } else { format!("({text})") });
        at = next.to;
    }
    out.push_str(&source[at..to]);
    out
}

/// Finds the place in the source, apart from white space. The error is the number of matches.
fn find(source: &str, change: &Change) -> Result<(usize, usize), usize> {
    let bytes = source.bytes().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace());
    let (places, dense): (Vec<usize>, Vec<u8>) = bytes.unzip();
    let wanted: String = change.source.split_whitespace().collect();
    let (before, rest) = wanted.split_once('«').unwrap_or(("", &wanted));
    let (marked, after) = rest.split_once('»').unwrap_or((rest, ""));
    let whole = [before, marked, after].concat();
    let mut found = dense
        .windows(whole.len())
        .enumerate()
        .filter(|(_, window)| *window == whole.as_bytes())
        .map(|(at, _)| at);
    let first = found.next().ok_or(0usize)?;
    match found.count() {
        0 => {
            let from = first + before.len();
            Ok((places[from], places[from + marked.len() - 1] + 1))
        }
        more => Err(more + 1),
    }
}
