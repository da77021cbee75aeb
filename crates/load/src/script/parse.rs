//! Parses the text of a script into commands. `\if` and similar commands become branches and jumps,
//! so running a script needs no nesting.

use std::fmt;

use super::{
    Action, Amount, Command, Script, Statement, Store,
    split::{Raw, Split},
};
use crate::{
    expr,
    names::{Names, is_name},
};

/// An error in a script, in pgbench's words if it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptError {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) reason: String,
    /// The command's name, without its backslash.
    pub(crate) command: String,
    /// The text of the command, and the position of the error in it.
    pub(crate) shown: Option<(String, usize)>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)?;
        if !self.command.is_empty() {
            write!(f, " in command \"{}\"", self.command)?;
        }
        if let Some((text, at)) = &self.shown {
            write!(f, "\n{text}\n{:at$}^ error found here", "")?;
        }
        Ok(())
    }
}

/// Reads a script. Its variables get slots of `names`. Its statements get numbers from `statements`
/// on, which is increased.
///
/// # Errors
/// The error and its position.
pub(crate) fn parse(
    name: &str,
    weight: u32,
    text: &str,
    names: &mut Names,
    statements: &mut usize,
) -> Result<Script, ScriptError> {
    let mut parser = Parser { commands: Vec::new(), open: Vec::new(), names, statements };
    let mut last = 1;
    for (line, raw) in Split::new(text) {
        last = line;
        let done = match raw {
            Raw::Sql(sql) => parser.sql(sql).map_err(|reason| Wrong { reason, at: None }),
            Raw::Backslash(text) => parser.backslash(text),
        };
        done.map_err(|wrong| wrong.at(name, line, raw))?;
    }
    if !parser.open.is_empty() {
        return Err(ScriptError {
            file: name.to_owned(),
            line: last,
            reason: "\\if without matching \\endif".to_owned(),
            command: String::new(),
            shown: None,
        });
    }
    if parser.commands.is_empty() {
        return Err(ScriptError {
            file: name.to_owned(),
            line: 1,
            reason: "script has no commands".to_owned(),
            command: String::new(),
            shown: None,
        });
    }
    Ok(Script { name: name.to_owned(), weight, commands: parser.commands })
}

/// An error in one command, and its position there.
struct Wrong {
    reason: String,
    at: Option<usize>,
}

impl Wrong {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), at: None }
    }

    fn at(self, file: &str, line: usize, raw: Raw<'_>) -> ScriptError {
        let (command, text) = match raw {
            Raw::Sql(_) => (String::new(), None),
            Raw::Backslash(text) => (words(text).0.to_owned(), Some(text)),
        };
        let shown = match (self.at, text) {
            (Some(at), Some(text)) if !text[..at].contains('\n') => Some((text.to_owned(), at)),
            _ => None,
        };
        ScriptError { file: file.to_owned(), line, reason: self.reason, command, shown }
    }
}

/// An `\if` that has not ended.
struct Open {
    /// The branch whose other target is not known yet.
    branch: Option<usize>,
    /// The jumps to the end, which is not known yet.
    jumps: Vec<usize>,
}

struct Parser<'a> {
    commands: Vec<Command>,
    open: Vec<Open>,
    names: &'a mut Names,
    statements: &'a mut usize,
}

impl Parser<'_> {
    fn sql(&mut self, sql: &str) -> Result<(), String> {
        let joined = sql.replace("\\;", ";");
        let statement = Statement::new(&joined, *self.statements, self.names)?;
        *self.statements += 1;
        self.push(sql, Action::Sql(statement));
        Ok(())
    }

    fn push(&mut self, text: &str, action: Action) {
        let text = text.lines().next().unwrap_or_default().to_owned();
        self.commands.push(Command { text, action });
    }

    fn backslash(&mut self, text: &str) -> Result<(), Wrong> {
        let (command, arguments) = words(text);
        let plain = || match arguments.trim().is_empty() {
            true => Ok(()),
            false => Err(Wrong::new("unexpected argument")),
        };
        match command {
            "set" => self.set(text),
            "sleep" => self.sleep(text, arguments),
            "if" => self.begin_if(text, arguments),
            "elif" => self.elif(text, arguments),
            "else" => plain().and_then(|()| self.otherwise(text)),
            "endif" => plain().and_then(|()| self.endif(text)),
            "gset" | "aset" => self.store(command == "aset", arguments),
            "startpipeline" => plain().map(|()| self.push(text, Action::StartPipeline)),
            "syncpipeline" => plain().map(|()| self.push(text, Action::SyncPipeline)),
            "endpipeline" => plain().map(|()| self.push(text, Action::EndPipeline)),
            "shell" | "setshell" => Err(Wrong::new("running programs is not supported")),
            _ => Err(Wrong::new("invalid command")),
        }
    }

    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let (_, arguments) = words(text);
        let (name, _) = words(arguments);
        if name.is_empty() {
            return Err(Wrong::new("missing argument"));
        }
        if !is_name(name) {
            return Err(Wrong::new(format!("invalid variable name: \"{name}\"")));
        }
        let at = text.len() - arguments.len() + (arguments.len() - arguments.trim_start().len());
        let expr = self.expr(text, at + name.len())?;
        let slot = self.names.slot(name);
        self.push(text, Action::Set(slot, expr));
        Ok(())
    }

    fn sleep(&mut self, text: &str, arguments: &str) -> Result<(), Wrong> {
        let (amount, rest) = words(arguments);
        let (amount, rest) = match split_unit(amount) {
            Some((digits, unit)) if rest.trim().is_empty() => (digits, unit),
            _ => (amount, rest.trim()),
        };
        let unit = match rest.to_ascii_lowercase().as_str() {
            "" | "s" => 1_000_000,
            "ms" => 1_000,
            "us" => 1,
            _ => {
                let reason = "unrecognized time unit, must be us, ms or s";
                return Err(Wrong::new(reason));
            }
        };
        let amount = match amount.strip_prefix(':') {
            Some(name) if is_name(name) => Amount::Variable(self.names.slot(name)),
            _ if amount.is_empty() => return Err(Wrong::new("missing argument")),
            _ => Amount::Fixed(
                amount.parse().map_err(|_| Wrong::new("invalid sleep time, must be an integer"))?,
            ),
        };
        self.push(text, Action::Sleep(amount, unit));
        Ok(())
    }

    fn begin_if(&mut self, text: &str, arguments: &str) -> Result<(), Wrong> {
        let condition = self.expr(text, text.len() - arguments.len())?;
        self.open.push(Open { branch: Some(self.commands.len()), jumps: Vec::new() });
        self.push(text, Action::Branch { condition, otherwise: 0 });
        Ok(())
    }

    fn elif(&mut self, text: &str, arguments: &str) -> Result<(), Wrong> {
        let condition = self.expr(text, text.len() - arguments.len())?;
        self.next_branch("elif", "")?;
        if let Some(open) = self.open.last_mut() {
            open.branch = Some(self.commands.len());
        }
        self.push(text, Action::Branch { condition, otherwise: 0 });
        Ok(())
    }

    fn otherwise(&mut self, text: &str) -> Result<(), Wrong> {
        self.next_branch("else", text)
    }

    /// Ends the branch before with a jump to the end, and makes its condition lead behind that.
    fn next_branch(&mut self, command: &str, text: &str) -> Result<(), Wrong> {
        let jump = self.commands.len();
        let Some(open) = self.open.last_mut() else {
            return Err(Wrong::new(format!("unmatched \\{command}")));
        };
        let Some(branch) = open.branch.take() else {
            return Err(Wrong::new(format!("\\{command} after \\else")));
        };
        open.jumps.push(jump);
        self.push(text, Action::Jump(0));
        self.lead(branch, jump + 1);
        Ok(())
    }

    fn endif(&mut self, text: &str) -> Result<(), Wrong> {
        let Some(open) = self.open.pop() else { return Err(Wrong::new("unmatched \\endif")) };
        let end = self.commands.len();
        for at in open.branch.into_iter().chain(open.jumps) {
            self.lead(at, end);
        }
        self.push(text, Action::Jump(end + 1));
        Ok(())
    }

    fn lead(&mut self, at: usize, to: usize) {
        match self.commands.get_mut(at).map(|command| &mut command.action) {
            Some(Action::Branch { otherwise, .. }) => *otherwise = to,
            Some(Action::Jump(target)) => *target = to,
            _ => {}
        }
    }

    fn store(&mut self, of_all: bool, arguments: &str) -> Result<(), Wrong> {
        let (prefix, rest) = words(arguments);
        if !rest.trim().is_empty() {
            return Err(Wrong::new("too many arguments"));
        }
        if !prefix.is_empty() && !is_name(prefix) {
            return Err(Wrong::new(format!("invalid variable name: \"{prefix}\"")));
        }
        let store = Store { prefix: prefix.to_owned(), of_all };
        match self.commands.last_mut().map(|command| &mut command.action) {
            Some(Action::Sql(statement)) if statement.store.is_none() => {
                statement.store = Some(store);
                Ok(())
            }
            Some(Action::Sql(_)) => Err(Wrong::new("a command can have one \\gset or \\aset only")),
            _ => Err(Wrong::new("\\gset must follow an SQL command")),
        }
    }

    /// Parses the expression at position `at` of the command's text. A backslash at the end of a
    /// line counts as a blank.
    fn expr(&mut self, text: &str, at: usize) -> Result<expr::Expr, Wrong> {
        let one_line = text[at..].replace("\\\r\n", "   ").replace("\\\n", "  ");
        if one_line.trim().is_empty() {
            return Err(Wrong::new("missing argument"));
        }
        expr::parse(&one_line, self.names)
            .map_err(|error| Wrong { reason: error.reason, at: Some(at + error.at) })
    }
}

/// Returns the first word, without a leading backslash, and the rest.
fn words(text: &str) -> (&str, &str) {
    let text = text.trim_start().trim_start_matches('\\');
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    text.split_at(end)
}

/// Splits `10ms`: a unit may follow its number directly.
fn split_unit(word: &str) -> Option<(&str, &str)> {
    let end = word.find(|c: char| c.is_ascii_alphabetic()).filter(|end| *end > 0)?;
    (!word.starts_with(':')).then(|| word.split_at(end))
}
