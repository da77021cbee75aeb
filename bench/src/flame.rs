//! The distribution of a program's CPU time: samples of its stacks, combined into a call tree.
//! `recording.rs` takes the samples, `picture.rs` draws the tree.

mod picture;
mod recording;

use std::collections::BTreeMap;
use std::path::Path;

pub(crate) use picture::draw;
pub(crate) use recording::{Recorder, Recording};

/// The kind of code that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Program,
    Library,
    Kernel,
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    owner: Owner,
    name: String,
}

/// A node of the call tree: the samples that share the same callers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    samples: u64,
    callees: BTreeMap<Frame, Self>,
}

impl Node {
    /// Reads the output of `perf script` with the fields `ip,sym,dso`. A block of lines is one
    /// stack, innermost function first. Frames of `program` without a symbol are named after
    /// `label`.
    pub(crate) fn parse(script: &str, program: &Path, label: &str) -> Self {
        let mut root = Self::default();
        for block in script.split("\n\n") {
            let frames = block.lines().filter_map(|line| Frame::parse(line, program, label));
            let mut stack: Vec<_> = frames.collect();
            stack.reverse();
            // Consecutive frames of functions without symbols become one frame, and so do recursive
            // calls.
            stack.dedup();
            if !stack.is_empty() {
                root.add(stack);
            }
        }
        root
    }

    fn add(&mut self, stack: Vec<Frame>) {
        self.samples += 1;
        let mut node = self;
        for frame in stack {
            node = node.callees.entry(frame).or_default();
            node.samples += 1;
        }
    }

    /// Returns the share of the samples whose innermost frame belongs to `owner`.
    fn share(&self, owner: Owner) -> f64 {
        self.own_samples(None, owner) as f64 / self.samples.max(1) as f64
    }

    fn own_samples(&self, frame: Option<&Frame>, owner: Owner) -> u64 {
        let called: u64 = self.callees.values().map(|callee| callee.samples).sum();
        let is_owner = frame.is_some_and(|frame| frame.owner == owner);
        let own = if is_owner { self.samples - called } else { 0 };
        let callees = self.callees.iter();
        own + callees.map(|(frame, node)| node.own_samples(Some(frame), owner)).sum::<u64>()
    }

    fn depth(&self) -> usize {
        self.callees.values().map(|callee| 1 + callee.depth()).max().unwrap_or(0)
    }
}

impl Frame {
    /// Parses a line such as `ffffffff81e2eae2 __sys_sendto ([kernel.kallsyms])`.
    fn parse(line: &str, program: &Path, label: &str) -> Option<Self> {
        let (_address, rest) = line.trim().split_once(' ')?;
        let (symbol, module) = rest.strip_suffix(')')?.rsplit_once(" (")?;
        let path = Path::new(module);
        let owner = if module.starts_with("[kernel") {
            Owner::Kernel
        } else if path == program {
            Owner::Program
        } else {
            Owner::Library
        };
        let name = match (symbol, owner) {
            ("[unknown]", Owner::Program) => format!("[{label}]"),
            ("[unknown]", Owner::Kernel | Owner::Library) => {
                let file = path.file_name().unwrap_or(path.as_os_str());
                format!("[{}]", file.to_string_lossy().trim_matches(['[', ']']))
            }
            _ => symbol.to_owned(),
        };
        Some(Self { owner, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
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

    fn tree() -> Node {
        Node::parse(SCRIPT, Path::new("/run/pooler-1"), "Weir 1")
    }

    #[test]
    fn a_tree_has_the_callers_at_its_root() {
        let tree = tree();
        assert_eq!((tree.samples, tree.depth(), tree.callees.len()), (3, 4, 1));
        let main = tree.callees.values().next().unwrap();
        let names: Vec<_> =
            main.callees.iter().map(|(frame, node)| (frame.name.as_str(), node.samples)).collect();
        let expected =
            [("<proxy::Conn as Io>::send (fast)", 1), ("[Weir 1]", 1), ("[libevent-2.1.so.7]", 1)];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_sample_counts_for_the_owner_of_its_innermost_function() {
        let tree = tree();
        for owner in [Owner::Program, Owner::Library, Owner::Kernel] {
            assert!((tree.share(owner) - 1.0 / 3.0).abs() < 1e-9, "{owner:?}");
        }
        assert_eq!(Node::parse("", Path::new("/run/pooler-1"), "").samples, 0);
    }

    #[test]
    fn a_picture_leaves_out_narrow_frames() {
        let picture = draw(&tree(), "Weir <1>");
        for shown in ["Weir &lt;1&gt;", "kernel 33 %", "send (fast)", "libevent"] {
            assert!(picture.contains(shown), "{shown}");
        }
        let mut script = SCRIPT.repeat(1_000);
        script.push_str("\t1 lost_in_the_crowd (/run/pooler-1)\n\n");
        let picture = draw(&Node::parse(&script, Path::new("/run/pooler-1"), ""), "");
        assert!(picture.contains("__send") && !picture.contains("lost_in_the_crowd"));
    }
}
