//! `weir convert FILE`: prints the configuration of PgBouncer or Pgpool-II as a `weir.toml`.

mod aes;
mod files;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use pgpool::{Broken, Converted, Settings, Sources, TextFile};

use crate::{
    args::{ConvertOptions, Format},
    explain,
};

/// The exit status if a file of Pgpool-II cannot be used.
const UNUSABLE: u8 = 2;

pub(crate) fn run(options: &ConvertOptions) -> anyhow::Result<ExitCode> {
    match options.from.unwrap_or_else(|| format_of(&options.file)) {
        Format::Pgbouncer => explain::convert(&options.file),
        Format::Pgpool => match from_pgpool(options) {
            Ok(text) => explain::print(&text),
            Err(broken) => {
                let why = broken.to_string().replace(char::is_control, "?");
                let _ = writeln!(io::stderr(), "weir convert: {why}");
                Ok(ExitCode::from(UNUSABLE))
            }
        },
    }
}

/// A file that cannot be read counts as PgBouncer's, unless its name is that of Pgpool-II's.
fn format_of(file: &Path) -> Format {
    let is_named =
        file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pgpool"));
    let is_toml = file.extension().is_some_and(|extension| extension == "toml");
    let text = files::text(file).unwrap_or_default();
    let has_sections = text.lines().any(|line| line.trim_start().starts_with('['));
    match !is_toml && (is_named && !has_sections || pgpool::is_pgpool(&text)) {
        true => Format::Pgpool,
        false => Format::Pgbouncer,
    }
}

/// Writes the files with passwords and the report. Returns the text of the `weir.toml`.
fn from_pgpool(options: &ConvertOptions) -> Result<String, Broken> {
    let file = files::absolute_of(&options.file)?;
    let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
    let name = shown(&file);
    let settings = Settings::parse(&files::needed(&file)?, &name, &include)?;
    let beside = |named: &Option<PathBuf>, name: &str| match named {
        Some(file) => files::named(file).map(Some),
        None => files::optional(&folder.join(name)),
    };
    let pool_hba = match settings.is_on("enable_pool_hba") {
        true => beside(&options.pool_hba, "pool_hba.conf")?,
        false => None,
    };
    let users = settings.get("pool_passwd").map_or("pool_passwd", |item| &item.value);
    let pool_passwd = match users.is_empty() && options.pool_passwd.is_none() {
        true => None,
        false => beside(&options.pool_passwd, users)?,
    };
    let pcp_conf = beside(&options.pcp_conf, "pcp.conf")?;
    let key = key(options, &folder)?;
    let secrets = files::absolute_of(options.secrets.as_deref().unwrap_or(Path::new(".")))?;
    let auth_file = secrets.join("weir-users.txt");
    let password_file = secrets.join("weir-monitor.txt");
    let (auth_name, password_name) = (shown(&auth_file), shown(&password_file));
    let converted = pgpool::convert(&Sources {
        name: &name,
        settings: &settings,
        pool_hba: text_file(&pool_hba),
        pool_passwd: text_file(&pool_passwd),
        pcp_conf: text_file(&pcp_conf),
        key: key.as_deref(),
        decrypt: &aes::decrypt,
        auth_file: &auth_name,
        password_file: &password_name,
    })?;
    let Converted { toml, report, auth_file: users, password_file: password } = converted;
    let secret = [
        (auth_file, users, "the users of pool_passwd"),
        (password_file, password, "the password with which Weir watches the nodes"),
    ];
    let secret = secret.into_iter().filter_map(|(file, text, what)| Some((file, text?, what)));
    let secret: Vec<_> = secret.collect();
    files::write_secret(secret.iter().map(|(file, text, _)| (file.as_path(), text.as_str())))?;
    let mut text = report.to_string();
    for (file, _, what) in &secret {
        text += &format!(
            "\n{} (mode 0600) has {what}. Give it to the user that runs Weir.\n",
            shown(file)
        );
    }
    let _ = io::stderr().write_all(text.as_bytes());
    Ok(format!(
        "# Made from {name} by `weir convert`. `weir check-config --connect FILE` tries the logins.\n\n\
         {toml}"
    ))
}

fn text_file(read: &Option<(String, String)>) -> Option<TextFile<'_>> {
    read.as_ref().map(|(name, text)| TextFile { name, text })
}

fn shown(file: &Path) -> String {
    file.display().to_string().replace(char::is_control, "?")
}

/// Reads an included file, whose name is relative to the folder of the file that includes it.
fn include(name: &str, from: &str) -> Result<(String, String), String> {
    let file = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
    let text = files::text(&file).map_err(|error| config::in_words(&error))?;
    Ok((shown(&file), text))
}

/// Returns the key of encrypted passwords: the first line of its file.
fn key(options: &ConvertOptions, folder: &Path) -> Result<Option<String>, Broken> {
    let first_line = |text: String| text.lines().next().map(str::to_owned);
    if let Some(file) = &options.pgpoolkey {
        return files::named(file).map(|(_, text)| first_line(text));
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let places = [
        variable("PGPOOLKEYFILE"),
        variable("HOME").map(|home| home.join(".pgpoolkey")),
        Some(folder.join(".pgpoolkey")),
    ];
    for file in places.into_iter().flatten() {
        // It may not be needed, so a file that cannot be read counts as missing.
        if let Ok(Some((_, text))) = files::optional(&file) {
            return Ok(first_line(text));
        }
    }
    Ok(None)
}
