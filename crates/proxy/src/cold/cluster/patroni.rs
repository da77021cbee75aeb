//! Patroni's REST API: the members of a cluster, and switchovers.
//!
//! * `request.rs`: one HTTP request
//! * `members.rs`: the answer with the members

mod members;
mod request;

use ::cluster::Outcome;
use config::{Api, Cluster, Node};
use hyper::Method;
use serde::Deserialize;
use tokio::time::timeout;

use self::{
    members::Members,
    request::{Answer, Question, Trouble},
};
use crate::cold::dns::Dns;

/// The APIs of a cluster.
pub(super) struct Patroni<'a> {
    pub(super) dns: &'a Dns,
    pub(super) cluster: &'a Cluster,
}

/// The part of the answer to `GET /patroni` that is used.
#[derive(Deserialize)]
struct Status {
    /// Missing while PostgreSQL does not run there.
    database_system_identifier: Option<String>,
}

impl Patroni<'_> {
    /// Returns the nodes by the first API that answers. If it names new ones, it must belong to the
    /// cluster with this system identifier.
    ///
    /// # Errors
    /// What each API has said.
    pub(super) async fn nodes(&self, system: Option<u64>) -> Result<Vec<Node>, String> {
        let is_known = |node: &Node| self.cluster.nodes.contains(node);
        let mut troubles = Vec::new();
        for api in &self.cluster.patroni {
            let found = async {
                let nodes = self.members(api).await?.nodes()?;
                if !nodes.iter().all(is_known) {
                    self.check_system(api, system).await?;
                }
                Ok::<_, String>(nodes)
            };
            match found.await {
                Ok(nodes) => return Ok(nodes),
                Err(why) => troubles.push(format!("Patroni at {api}: {why}")),
            }
        }
        Err(troubles.join("; "))
    }

    /// Has Patroni make `to` the primary in place of `from`, and waits until it says that this is
    /// done.
    pub(super) async fn switch_over(&self, from: &str, to: &str) -> Outcome {
        let body = serde_json::json!({ "leader": from, "candidate": to }).to_string();
        let order = Question { method: Method::POST, path: "/switchover", body };
        let limit = self.cluster.command_timeout;
        let mut troubles = Vec::new();
        for api in self.doors(from).await {
            let answer = timeout(limit, request::ask(self.dns, self.cluster, &api, &order)).await;
            let late = || Trouble::Lost(format!("no answer within {} s", limit.as_secs_f64()));
            let said = |what: String| format!("Patroni at {api}: {what}");
            match answer.unwrap_or_else(|_| Err(late())) {
                Ok(answer) if answer.status.is_success() => return Outcome::Done,
                Ok(answer) if answer.status.is_client_error() => {
                    return Outcome::Unsent(said(answer.in_words()));
                }
                Ok(answer) => return Outcome::Failed(said(answer.in_words())),
                Err(Trouble::Lost(why)) => return Outcome::Failed(said(why)),
                Err(Trouble::Unsent(why)) => troubles.push(said(why)),
            }
        }
        Outcome::Unsent(troubles.join("; "))
    }

    /// Returns the APIs for an order: first that of the primary, which acts at once. It is not used
    /// if it has no TLS and the configured ones have.
    async fn doors(&self, primary: &str) -> Vec<Api> {
        let configured = &self.cluster.patroni;
        let mut doors = Vec::new();
        for api in configured {
            if let Ok(members) = self.members(api).await {
                let is_safe = |own: &Api| own.is_tls || !api.is_tls;
                doors.extend(members.api(primary).filter(is_safe));
                break;
            }
        }
        doors.extend(
            configured.iter().filter(|api| !doors.contains(api)).cloned().collect::<Vec<_>>(),
        );
        doors
    }

    async fn members(&self, api: &Api) -> Result<Members, String> {
        Members::read(&self.get(api, "/cluster").await?.body)
    }

    async fn check_system(&self, api: &Api, system: Option<u64>) -> Result<(), String> {
        let Some(system) = system else { return Ok(()) };
        let answer = self.get(api, "/patroni").await?;
        let status: Status = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("it does not tell its state: {error}"))?;
        match status.database_system_identifier.and_then(|text| text.parse::<u64>().ok()) {
            Some(own) if own != system => Err(format!(
                "it belongs to another cluster, with the system identifier {own} and not {system}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    async fn get(&self, api: &Api, path: &'static str) -> Result<Answer, String> {
        let question = Question { method: Method::GET, path, body: String::new() };
        let limit = self.cluster.health_timeout;
        let answer = timeout(limit, request::ask(self.dns, self.cluster, api, &question)).await;
        let late = |_| Err(Trouble::Lost(format!("no answer within {} s", limit.as_secs_f64())));
        let answer = answer.unwrap_or_else(late).map_err(Trouble::text)?;
        match answer.status.is_success() {
            true => Ok(answer),
            false => Err(answer.in_words()),
        }
    }
}
