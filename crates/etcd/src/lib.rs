//! The records of one cluster in etcd: carries out the requests of `cluster::fleet`.
//!
//! The client library is used here only. No function waits for longer than a few seconds, whatever
//! etcd does: a member of etcd that does not answer is left for another one.

#![forbid(unsafe_code)]

use std::error::Error as _;
use std::time::Duration;

use cluster::fleet::{Answer, News, Request, TTL, Transaction};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, Event, EventType, GetOptions,
    Identity, KeyValue, PutOptions, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchStream,
};
use tokio::time::timeout;

/// The limit of one request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time after which a connection without an answer is given up.
const ALIVE: Duration = Duration::from_secs(1);

/// The addresses of etcd, and the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// URLs of its members.
    pub urls: Vec<String>,
    /// User and password, if etcd has authentication.
    pub user: Option<(String, String)>,
    /// For `https`.
    pub tls: Option<Tls>,
    /// All keys begin with it; it ends with a slash.
    pub prefix: String,
}

/// PEM texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities; None: those of the system.
    pub ca: Option<String>,
    /// Weir's own certificate and its key.
    pub identity: Option<(String, String)>,
}

/// A connection to etcd, which opens itself again. Clones share it.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
    prefix: String,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The changes of all records, in their order.
pub struct Changes {
    stream: WatchStream,
    prefix: String,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Connects, and logs in.
    ///
    /// # Errors
    /// Why etcd cannot be used now.
    pub async fn connect(access: &Access) -> Result<Self, String> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ALIVE)
            .with_keep_alive(ALIVE, ALIVE)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &access.user {
            options = options.with_user(user, password);
        }
        if let Some(tls) = &access.tls {
            options = options.with_tls(tls.options());
        }
        let client = within(Client::connect(&access.urls, Some(options))).await?;
        Ok(Self { client, prefix: access.prefix.clone() })
    }

    fn key(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Carries out a request.
    pub async fn obey(&self, request: &Request) -> Answer {
        let answer = match request {
            Request::Load => self.load().await,
            Request::Grant => {
                let mut client = self.client.clone();
                within(client.lease_grant(TTL, None)).await.map(|grant| Answer::Granted(grant.id()))
            }
            Request::Change(change) => self.change(change).await,
            Request::Revoke(lease) => {
                let mut client = self.client.clone();
                within(client.lease_revoke(*lease)).await.map(|_| Answer::Done)
            }
        };
        answer.unwrap_or_else(Answer::Failed)
    }

    async fn load(&self) -> Result<Answer, String> {
        let mut client = self.client.clone();
        let all = GetOptions::new().with_prefix();
        let found = within(client.get(self.prefix.as_str(), Some(all))).await?;
        let revision = found.header().map_or(0, |header| header.revision());
        Ok(self.loaded(found.kvs(), revision))
    }

    fn loaded(&self, records: &[KeyValue], revision: i64) -> Answer {
        let records = records.iter().filter_map(|own| news(&self.prefix, own, true));
        Answer::Loaded { records: records.collect(), revision }
    }

    async fn change(&self, change: &Transaction) -> Result<Answer, String> {
        let checks: Vec<_> = change
            .checks
            .iter()
            .map(|(path, revision)| {
                Compare::mod_revision(self.key(path), CompareOp::Equal, *revision)
            })
            .collect();
        let deletes = change.deletes.iter().map(|path| TxnOp::delete(self.key(path), None));
        let puts = change.puts.iter().map(|record| {
            let lease = record.is_leased().then(|| PutOptions::new().with_lease(change.lease));
            TxnOp::put(self.key(&record.path()), record.value(), lease)
        });
        let mut steps: Vec<_> = deletes.chain(puts).collect();
        if change.is_loading {
            let all = GetOptions::new().with_prefix();
            steps.push(TxnOp::get(self.prefix.as_str(), Some(all)));
        }
        let mut client = self.client.clone();
        let done = within(client.txn(Txn::new().when(checks).and_then(steps))).await?;
        if !done.succeeded() {
            return Ok(Answer::Refused);
        }
        let revision = done.header().map_or(0, |header| header.revision());
        let found = done.op_responses().into_iter().find_map(|step| match step {
            TxnOpResponse::Get(found) => Some(self.loaded(found.kvs(), revision)),
            TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
        });
        Ok(found.unwrap_or(Answer::Done))
    }

    /// Renews a lease. Returns false if etcd has no such lease.
    ///
    /// # Errors
    /// Why it is not known whether it is renewed.
    pub async fn renew(&self, lease: i64) -> Result<bool, String> {
        let mut client = self.client.clone();
        let renewed = async {
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        match within(renewed).await {
            Ok(Some(answer)) => Ok(answer.ttl() > 0),
            Ok(None) => Err("etcd has ended the connection".to_owned()),
            // The library takes the answer for an error.
            Err(why) if why.contains("lease not found") => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Watches the changes after this revision.
    ///
    /// # Errors
    /// Why etcd cannot be watched now.
    pub async fn watch(&self, revision: i64) -> Result<Changes, String> {
        let mut client = self.client.clone();
        let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let stream = within(client.watch(self.prefix.as_str(), Some(options))).await?;
        Ok(Changes { stream, prefix: self.prefix.clone() })
    }
}

impl Changes {
    /// Waits for the next changes.
    ///
    /// # Errors
    /// Why the watch has ended. Changes may be missed from then on.
    pub async fn next(&mut self) -> Result<Vec<News>, String> {
        let told = self.stream.message().await.map_err(|error| in_words(&error))?;
        let told = told.ok_or("etcd has ended the watch")?;
        if told.canceled() {
            return Err(format!("etcd has ended the watch: {}", told.cancel_reason()));
        }
        let change =
            |own: &Event| news(&self.prefix, own.kv()?, own.event_type() == EventType::Put);
        Ok(told.events().iter().filter_map(change).collect())
    }
}

/// Returns a record below the prefix. `exists`: it is not deleted.
fn news(prefix: &str, record: &KeyValue, exists: bool) -> Option<News> {
    let path = record.key_str().ok()?.strip_prefix(prefix)?.to_owned();
    let value = exists.then(|| record.value().to_vec());
    Some(News { path, value, revision: record.mod_revision() })
}

impl Tls {
    fn options(&self) -> TlsOptions {
        let options = match &self.ca {
            Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
            None => TlsOptions::new().with_native_roots(),
        };
        match &self.identity {
            Some((cert, key)) => options.identity(Identity::from_pem(cert, key)),
            None => options,
        }
    }
}

/// Waits for an answer, but not for long.
async fn within<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(in_words(&error)),
        Err(_) => Err(format!("etcd has not answered within {} s", PATIENCE.as_secs())),
    }
}

/// Returns the error with its causes. The library itself says "transport error" only.
fn in_words(error: &Error) -> String {
    let mut words = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut cause = match error {
        Error::GRpcStatus(status) => status.source(),
        other => other.source(),
    };
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = inner.source();
    }
    words
}
