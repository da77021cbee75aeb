//! From tokens to signs.
//!
//! These decide, in this order:
//!
//! * the first word of a statement, and the one or two behind it ([`Judge::lead`]);
//! * a few words anywhere ([`Judge::word`]): INTO that is not INSERT INTO, WITH HOLD, CREATE and
//!   EXECUTE after EXPLAIN, the names of two views;
//! * a name before a parenthesis ([`Judge::open`]), which is a call, unless the grammar excludes
//!   one.
//!
//! A semicolon always ends a statement here, even in the body of a function or a rule. The text
//! after it is then judged as if it were run.

use crate::functions::Callee;
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::mark::Mark;
use crate::name::Name;
use crate::names::mix;
use crate::signs::{Seen, Signs};

#[derive(Clone, Debug)]
pub(crate) struct Judge {
    signs: Signs,
    functions: u64,
    draws: u32,
    /// Something else than a call by name makes the text opaque.
    nameless: bool,
    statement: Statement,
}

/// The state that is kept until the statement's end.
#[derive(Clone, Debug)]
struct Statement {
    /// The first word, and the number of tokens from it on.
    verb: Keyword,
    tokens: u32,
    /// The token before the last, and the last.
    earlier: Mark,
    last: Mark,
    /// The token before the present name, `schema.name` as a whole.
    before: Mark,
    /// `::` precedes the name.
    is_type: bool,
    schema: Schema,
    /// Open parentheses.
    depth: u32,
    /// A call of an unknown function, unless the next token excludes it.
    call: Option<u64>,
    /// In the arguments of `set_config`: the depth of its parenthesis.
    setting: Option<u32>,
    /// SELECT has been seen outside of parentheses.
    selects: bool,
    /// The last INSERT or MERGE is the command, and not a name.
    inserts: bool,
    updates: bool,
    names_settings: bool,
    /// An expression may follow `)`: DISTINCT ON (…), OPERATOR(…), RETURNING WITH (…).
    loose: bool,
    /// ON CONFLICT without its DO.
    conflicts: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schema {
    None,
    Catalog,
    /// Another function, with a digest of its name.
    Other(u64),
}

impl Judge {
    pub(crate) const fn new() -> Self {
        Self {
            signs: Signs::NONE,
            functions: 0,
            draws: 0,
            nameless: false,
            statement: Statement::new(),
        }
    }

    /// `name` is the name of this token or of the one before.
    #[inline]
    pub(crate) fn take(&mut self, kind: Kind, name: &Name) {
        let mark = Mark::of(kind, name);
        self.settle_call(mark);
        if mark.is_identifier() {
            self.statement.begin_name();
            if self.statement.names_target() {
                self.draw(name);
            }
        }
        match mark {
            Mark::Symbol(b';') => return self.end_statement(),
            Mark::Symbol(b'(') => self.open(name),
            Mark::Symbol(b')') => self.close(),
            Mark::Symbol(b'.') => self.statement.qualify(name),
            Mark::Word(Keyword::Other) | Mark::Quoted => self.view(name.as_bytes()),
            Mark::Word(keyword) => self.word(keyword),
            Mark::Unicode => {
                self.signs |= Signs::CALLABLE;
                self.nameless = true;
            }
            Mark::Literal | Mark::Symbol(_) | Mark::Start => {}
        }
        self.lead(mark);
        let statement = &mut self.statement;
        (statement.earlier, statement.last) = (statement.last, mark);
    }

    /// `certain`: the text ended where a text can end.
    pub(crate) fn finish(mut self, certain: bool) -> Seen {
        self.end_statement();
        if !certain {
            self.obscure();
        }
        let functions = if self.nameless { 0 } else { self.functions };
        Seen { signs: self.signs, draws: self.draws, functions }
    }

    /// Takes a name that may be that of a view.
    #[inline]
    fn view(&mut self, name: &[u8]) {
        if let [b'p', b'g', b'_', view @ ..] = name {
            match view {
                b"settings" => self.statement.names_settings = true,
                b"prepared_statements" => self.signs |= Signs::PREPARED,
                _ => {}
            }
        }
    }

    /// Takes the first three tokens of a statement.
    #[inline]
    fn lead(&mut self, mark: Mark) {
        let statement = &mut self.statement;
        let place = statement.tokens;
        if place > 2 || place == 0 && mark == Mark::Symbol(b'(') {
            return;
        }
        statement.tokens += 1;
        match (place, mark) {
            (0, Mark::Word(verb)) => {
                statement.verb = verb;
                self.signs |= signs_of_verb(verb);
                self.nameless |= matches!(verb, Keyword::Do | Keyword::Execute);
            }
            (1, _) => self.second(mark),
            (2, _) => self.third(mark),
            _ => {}
        }
    }

    fn second(&mut self, mark: Mark) {
        use Keyword::{
            Alter, Constraints, Create, Discard, Extension, Local, Plans, Prepare, Seed, Sequences,
            Set, Temp, Temporary, Transaction,
        };
        match (self.statement.verb, mark) {
            // The third token decides: these may also begin the name of a setting.
            (Set, Mark::Word(Local | Transaction | Constraints)) => {}
            // No view shows this setting; it has the effect of setseed().
            (Set, Mark::Word(Seed)) => self.signs |= Signs::SEED,
            (Set, _) => self.signs |= Signs::SETTINGS,
            (Discard, Mark::Word(Plans | Temp | Temporary | Sequences)) => {}
            (Discard, _) => self.signs |= Signs::SETTINGS,
            // PREPARE TRANSACTION 'name', or a statement of that name.
            (Prepare, Mark::Word(Transaction)) => {}
            (Prepare, _) => self.signs |= Signs::PREPARED,
            // Its script may do anything.
            (Create | Alter, Mark::Word(Extension)) => self.obscure(),
            _ => {}
        }
    }

    fn third(&mut self, mark: Mark) {
        use Keyword::{Constraints, Local, Prepare, Seed, Set, To, Transaction};
        match (self.statement.verb, self.statement.last, mark) {
            (
                Set,
                Mark::Word(Local | Transaction | Constraints),
                Mark::Symbol(b'.' | b'=') | Mark::Word(To),
            ) => self.signs |= Signs::SETTINGS,
            // SET SESSION seed
            (Set, _, Mark::Word(Seed)) => self.signs |= Signs::SEED,
            (Set, Mark::Word(Local), _) => self.signs |= Signs::LOCAL,
            (Prepare, Mark::Word(Transaction), Mark::Literal) => {}
            (Prepare, Mark::Word(Transaction), _) => self.signs |= Signs::PREPARED,
            _ => {}
        }
    }

    /// Takes a word that matters anywhere in a statement.
    #[inline]
    fn word(&mut self, keyword: Keyword) {
        use Keyword::{
            Conflict, Create, Declare, Distinct, Do, Execute, Explain, Hold, Insert, Into, Merge,
            On, Operator, Returning, Select, Update, With,
        };
        let statement = &mut self.statement;
        match (keyword, statement.last) {
            (Select, _) => statement.selects |= statement.depth == 0,
            (Insert, last) => {
                statement.inserts = statement.may_begin_command(last);
            }
            (Merge, last) => {
                statement.inserts = statement.may_begin_command(last);
                statement.updates = true;
            }
            (Into, Mark::Word(Insert | Merge)) if statement.inserts => {}
            (Into, _) => self.signs |= Signs::TEMPORARY,
            (Create, _) if statement.verb == Explain => self.signs |= Signs::TEMPORARY,
            (Execute, _) if matches!(statement.verb, Explain | Create) => {
                self.signs |= Signs::PREPARED;
                self.obscure();
            }
            (Hold, Mark::Word(With)) if matches!(statement.verb, Declare | Explain) => {
                self.signs |= Signs::CURSOR;
            }
            (Update, _) => statement.updates = true,
            (Conflict, Mark::Word(On)) => statement.conflicts += 1,
            (Do, last) if last != Mark::Start => statement.conflicts -= 1,
            (On, Mark::Word(Distinct)) | (With, Mark::Word(Returning)) | (Operator, _) => {
                statement.loose = true;
            }
            _ => {}
        }
    }

    /// Takes an opening parenthesis. After a name it may be a call.
    #[inline]
    fn open(&mut self, name: &Name) {
        self.statement.depth = self.statement.depth.saturating_add(1);
        if !self.statement.last.is_identifier() {
            return;
        }
        let is_word = matches!(self.statement.last, Mark::Word(_));
        let plain = is_word && self.statement.schema == Schema::None;
        let catalog = matches!(self.statement.schema, Schema::None | Schema::Catalog);
        match Callee::of(name.as_bytes()) {
            Callee::Stateful(signs) => {
                self.signs |= signs.without(Signs::SETTINGS);
                if signs.contains(Signs::DRAWS) {
                    self.draw(name);
                }
                // It runs SQL that may differ each time.
                self.nameless |= signs.contains(Signs::OPAQUE);
                if signs.contains(Signs::SETTINGS) {
                    self.open_setting();
                }
                if !catalog {
                    self.call(name);
                }
            }
            Callee::Reserved if plain => {}
            Callee::Builtin if catalog && self.statement.verb != Keyword::Call => {}
            Callee::Reserved | Callee::Builtin | Callee::Unknown => self.call(name),
        }
    }

    /// Notes that the text may draw a number from a sequence. `name` is the table or the function.
    #[cold]
    fn draw(&mut self, name: &Name) {
        self.draws = (mix(u64::from(self.draws) ^ name.digest()) >> 32) as u32 | 1;
    }

    fn open_setting(&mut self) {
        match self.statement.setting {
            None => self.statement.setting = Some(self.statement.depth),
            Some(_) => self.signs |= Signs::SETTINGS,
        }
    }

    fn call(&mut self, name: &Name) {
        if self.statement.may_call() {
            let schema = match self.statement.schema {
                Schema::None => 0,
                Schema::Catalog => 1,
                Schema::Other(digest) => digest,
            };
            self.statement.call = Some(mix(name.digest() ^ schema.rotate_left(17)) | 1);
        }
    }

    /// Decides about a call by its first argument: no argument begins with one of these words.
    #[inline]
    fn settle_call(&mut self, next: Mark) {
        use Keyword::{Order, Select, Where, With};
        let Some(digest) = self.statement.call.take() else { return };
        if !matches!(next, Mark::Word(Order | Select | Where | With)) {
            self.signs |= Signs::OPAQUE;
            self.functions = self.functions.wrapping_add(digest).max(1);
        }
    }

    fn close(&mut self) {
        let statement = &mut self.statement;
        if statement.setting == Some(statement.depth) {
            statement.setting = None;
            let comma = Mark::Symbol(b',');
            self.signs |=
                match (statement.earlier, statement.last) == (comma, Mark::Word(Keyword::True)) {
                    true => Signs::LOCAL,
                    false => Signs::SETTINGS,
                };
        }
        statement.depth = statement.depth.saturating_sub(1);
    }

    fn end_statement(&mut self) {
        self.settle_call(Mark::Symbol(b';'));
        let statement = core::mem::replace(&mut self.statement, Statement::new());
        let updates_view = statement.updates && statement.names_settings;
        if updates_view || statement.setting.is_some() {
            self.signs |= Signs::SETTINGS;
        }
        if statement.conflicts > 0 {
            self.obscure();
        }
    }

    fn obscure(&mut self) {
        self.signs |= Signs::OPAQUE;
        self.nameless = true;
    }
}

impl Statement {
    const fn new() -> Self {
        Self {
            verb: Keyword::Other,
            tokens: 0,
            earlier: Mark::Start,
            last: Mark::Start,
            before: Mark::Start,
            is_type: false,
            schema: Schema::None,
            depth: 0,
            call: None,
            setting: None,
            selects: false,
            inserts: false,
            updates: false,
            names_settings: false,
            loose: false,
            conflicts: 0,
        }
    }

    #[inline]
    fn begin_name(&mut self) {
        if self.last != Mark::Symbol(b'.') {
            let colon = Mark::Symbol(b':');
            self.is_type = (self.earlier, self.last) == (colon, colon);
            self.before = self.last;
            self.schema = Schema::None;
        }
    }

    /// Is the present name that of the table of INSERT INTO or MERGE INTO, or of its schema?
    #[inline]
    fn names_target(&self) -> bool {
        self.inserts && self.before == Mark::Word(Keyword::Into)
    }

    /// Takes a dot after the name.
    #[inline]
    fn qualify(&mut self, name: &Name) {
        if !self.last.is_identifier() {
            // A field of a row, or a decimal point.
            (self.before, self.is_type) = (self.last, false);
            self.schema = Schema::Other(0);
            return;
        }
        let outer = match self.schema {
            Schema::Other(digest) => digest,
            Schema::None | Schema::Catalog => 0,
        };
        self.schema = match name.as_bytes() {
            b"pg_catalog" => Schema::Catalog,
            _ => Schema::Other(mix(outer.rotate_left(7) ^ name.digest())),
        };
    }

    /// Can INSERT or MERGE, after `last`, be the command? If not, a following INTO belongs to a
    /// SELECT. That SELECT precedes it outside of parentheses, or stands in those that hold the
    /// whole statement.
    fn may_begin_command(&self, last: Mark) -> bool {
        last == Mark::Symbol(b'(') || self.depth == 0 && !self.selects
    }

    /// Can a name before a parenthesis be that of a function, as it follows `before`? It cannot
    /// only where the grammar excludes it.
    fn may_call(&self) -> bool {
        use Keyword::{
            As, By, Conflict, Copy, Execute, Group, Into, On, Order, Over, Partition, Prepare,
            Recursive, With,
        };
        match (self.before, self.last) {
            // EXPLAIN (…), VACUUM (…)
            (Mark::Start, _) => false,
            // Tables, aliases, common table expressions and prepared statements, with their
            // columns.
            (Mark::Word(Into | As | With | Recursive | Copy | Prepare | Execute), _) => false,
            // A type with its modifiers.
            _ if self.is_type => false,
            (Mark::Word(Group | Order | Partition), Mark::Word(By)) => false,
            // `conflicts` counts it, because a function in a join may have this name.
            (Mark::Word(On), Mark::Word(Conflict)) => false,
            (Mark::Symbol(b')'), Mark::Word(Over)) => self.loose,
            _ => true,
        }
    }
}

fn signs_of_verb(verb: Keyword) -> Signs {
    match verb {
        Keyword::Create => Signs::TEMPORARY,
        Keyword::Drop | Keyword::Alter | Keyword::Close => Signs::RELEASE,
        Keyword::Deallocate => Signs::PREPARED | Signs::RELEASE,
        Keyword::Execute => Signs::PREPARED | Signs::OPAQUE,
        Keyword::Discard => Signs::DISCARD | Signs::RELEASE,
        Keyword::Listen | Keyword::Unlisten => Signs::LISTEN,
        Keyword::Load => Signs::LOAD,
        Keyword::Do | Keyword::Call => Signs::OPAQUE,
        Keyword::Reset => Signs::SETTINGS,
        _ => Signs::NONE,
    }
}
