//! Mutations of inputs: of single bytes, as in any fuzzer, and of whole messages, which changes of
//! single bytes would hardly ever achieve.

use wire::Header;

use crate::rng::Rng;

/// The bytes with settings before the messages, in targets that take messages.
const SETTINGS_LEN: usize = 2;
/// The maximum number of changes of one input.
const CHANGES_MAX: usize = 4;

/// Returns a mutation of `data`, possibly with parts of `other`, of at most `len_max` bytes.
pub fn mutate(data: &[u8], other: &[u8], len_max: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut data = data.to_vec();
    for _ in 0..=rng.below(CHANGES_MAX) {
        if rng.one_in(2) {
            change_messages(&mut data, other, &mut rng);
        } else {
            change_bytes(&mut data, other, &mut rng);
        }
    }
    data.truncate(len_max);
    data
}

fn change_bytes(data: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let place = rng.below(data.len() + 1);
    let byte = (rng.next() >> 56) as u8;
    match (rng.below(7), data.get_mut(place)) {
        (0, Some(at)) => *at = byte,
        (1, Some(at)) => *at ^= 1 << (byte & 7),
        (2, Some(at)) => *at = at.wrapping_add(byte % 5).wrapping_sub(2),
        (3, Some(_)) => drop(data.remove(place)),
        (4, _) => data.truncate(place),
        (5, _) => {
            let part = part_of(other, rng).to_vec();
            data.splice(place..place, part);
        }
        _ => data.insert(place, byte),
    }
}

fn part_of<'a>(bytes: &'a [u8], rng: &mut Rng) -> &'a [u8] {
    let from = rng.below(bytes.len() + 1);
    &bytes[from..from + rng.below(bytes.len() - from + 1)]
}

fn change_messages(data: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let (settings, stream) = data.split_at(data.len().min(SETTINGS_LEN));
    let mut messages = split(stream);
    let others = split(other.get(SETTINGS_LEN..).unwrap_or_default());
    let place = rng.below(messages.len() + 1);
    if place < messages.len() {
        match rng.below(5) {
            0 => drop(messages.remove(place)),
            1 => messages.insert(place, messages[place]),
            2 => {
                let to = rng.below(messages.len());
                messages.swap(place, to);
            }
            3 => {
                let from = rng.below(messages.len());
                messages.insert(place, messages[from]);
            }
            _ => insert_other(&mut messages, place, &others, rng),
        }
    } else {
        insert_other(&mut messages, place, &others, rng);
    }
    *data = [settings, &messages.concat()].concat();
}

fn insert_other<'a>(
    messages: &mut Vec<&'a [u8]>,
    place: usize,
    others: &[&'a [u8]],
    rng: &mut Rng,
) {
    if !others.is_empty() {
        messages.insert(place, others[rng.below(others.len())]);
    }
}

/// Splits a stream into messages. An incomplete message is the last part.
fn split(stream: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let len = match Header::parse(rest) {
            Ok(Some(header)) => header.total.min(rest.len()),
            Ok(None) | Err(_) => rest.len(),
        };
        let (part, behind) = rest.split_at(len);
        parts.push(part);
        rest = behind;
    }
    parts
}
