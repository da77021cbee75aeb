//! `make thesis`: shows that Weir fulfils what a thesis of 2004 asks of a connection pool in
//! PostgreSQL. Each requirement runs against a real PostgreSQL and the built program, in each path on
//! which it can hold.

mod capacity;
mod memory;
mod php;
mod pools;
mod process;
mod recycling;
mod requirement;
mod results;
mod reuse;
mod run;
mod site;
mod spares;
mod stops;
mod tables;
mod warm;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use requirement::Requirement;
use results::Results;
use run::Run;

/// The requirements, file by file. A new file is added here and as a module above.
const ALL: &[&[Requirement]] = &[
    capacity::ALL,
    reuse::ALL,
    pools::ALL,
    stops::ALL,
    workloads::ALL,
    warm::ALL,
    php::ALL,
    memory::ALL,
    recycling::ALL,
    spares::ALL,
];

/// Shows each requirement of the thesis, and fails if one is missed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Show only the requirements whose name contains one of these words.
    words: Vec<String>,
    /// Use smaller numbers.
    #[arg(long)]
    quick: bool,
    /// Print the names of the requirements only.
    #[arg(long)]
    list: bool,
    /// The program under test.
    #[arg(long, default_value = "target/release/weir")]
    weir: PathBuf,
    /// The folder for tables.
    #[arg(long, default_value = "target/thesis")]
    to: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_chosen = |one: &&Requirement| {
        let mut words = arguments.words.iter();
        arguments.words.is_empty() || words.any(|word| one.name.contains(&**word))
    };
    let chosen: Vec<_> = ALL.iter().copied().flatten().filter(is_chosen).collect();
    if arguments.list {
        chosen.iter().for_each(|one| println!("{}", one.name));
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        eprintln!("no requirement has one of these words in its name; --list prints the names");
        return ExitCode::FAILURE;
    }
    testkit::use_pooler(&std::path::absolute(&arguments.weir).expect("a path"));
    let run = Run::new(arguments.quick, arguments.to);
    requirement::catch_panics();
    let mut results = Results::default();
    for requirement in chosen {
        requirement.show(&run, &mut results);
    }
    results.write(&run);
    match results.tell() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
