//! `token create`, `list` and `revoke`.

use catalog::Role;
use clap::{Args, Subcommand};
use serde_json::json;
use types::{Error, Result};

use super::{AuditedChange, Context, Done};
use crate::installation::now;
use crate::output::table;
use crate::tokens::{self, AskedToken, CreatedToken, ShownToken};

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token and print it: it is shown once
    #[command(after_help = "Examples:\n  basestream token create ops --role admin\n  \
        basestream token create grafana --role reader --views device_velocity --expires 90d\n  \
        basestream token create shop --role writer --streams payments\n\n\
        Clients send it as `Authorization: Bearer <token>`, or as the password of the user NAME (PostgreSQL, Flight SQL).\n\
        Every process knows it within a second.")]
    Create {
        /// The name of the new token
        name: String,
        /// What it allows: reader, writer, operator or admin
        #[arg(long, value_parser = role)]
        role: Role,
        /// Limit it to these views
        #[arg(long, value_name = "VIEW,..", value_delimiter = ',')]
        views: Vec<String>,
        /// Limit it to these streams
        #[arg(long, value_name = "STREAM,..", value_delimiter = ',')]
        streams: Vec<String>,
        /// For how long it may be used, such as 90d [default: until it is revoked]
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List all tokens: what each allows, and until when
    List,
    /// Revoke a token: every process refuses it within a second
    #[command(after_help = "Example:\n  basestream token revoke grafana")]
    Revoke {
        /// The name of a token
        name: String,
    },
}

impl TokenArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        match &self.command {
            TokenCommand::Create { name, .. } => AuditedChange::new("create", "token", name),
            TokenCommand::Revoke { name } => AuditedChange::new("revoke", "token", name),
            TokenCommand::List => None,
        }
    }
}

pub(super) async fn token(context: &Context, args: TokenArgs) -> Result<Done> {
    let catalog = context.installation().await?.catalog;
    match args.command {
        TokenCommand::Create { name, role, views, streams, expires } => {
            let asked = AskedToken { name, role, views, streams, expires };
            let created = tokens::create(&catalog, asked, now()).await?;
            context.output.print(&created, || created_text(&created))?;
        }
        TokenCommand::List => {
            let tokens = tokens::list(&catalog, now()).await?;
            context.output.print(&json!({ "tokens": tokens }), || list_text(&tokens))?;
        }
        TokenCommand::Revoke { name } => {
            tokens::revoke(&catalog, &name, now()).await?;
            context
                .output
                .print(&json!({ "revoked": name }), || format!("the token \"{name}\" is revoked: it is refused within a second"))?;
        }
    }
    Ok(Done::Success)
}

fn role(text: &str) -> Result<Role> {
    let known = Role::ALL.map(Role::word).join(", ");
    Role::ALL
        .into_iter()
        .find(|role| role.word() == text)
        .ok_or_else(|| Error::input(format!("there is no role \"{text}\"; expected one of {known}")))
}

fn created_text(created: &CreatedToken) -> String {
    let until = created.shown.expires_at.as_ref().map_or("until it is revoked".to_owned(), |end| format!("until {end}"));
    let limits = limits(&created.shown);
    format!(
        "{}\n\nThis is the token \"{}\": {} of {limits}, {until}. It is shown once; the catalog has only what checks it.",
        created.token, created.shown.name, created.shown.role
    )
}

fn limits(token: &ShownToken) -> String {
    let listed = |what: &str, names: &Option<Vec<String>>| match names.as_deref() {
        None | Some([]) => None,
        Some(names) => Some(format!("{what} {}", names.join(", "))),
    };
    let both: Vec<String> = [listed("views", &token.views), listed("streams", &token.streams)].into_iter().flatten().collect();
    if both.is_empty() { "everything".to_owned() } else { both.join("; ") }
}

fn list_text(tokens: &[ShownToken]) -> String {
    if tokens.is_empty() {
        return "there is no token: `basestream token create NAME --role admin` makes one".to_owned();
    }
    let rows = tokens.iter().map(|token| {
        let end = token.revoked_at.as_ref().or(token.expires_at.as_ref()).cloned().unwrap_or_else(|| "-".to_owned());
        let made = format!("{} by {}", token.created_at, token.created_by);
        vec![token.name.clone(), token.role.to_string(), limits(token), token.state.to_owned(), end, made]
    });
    table(&["name", "role", "reaches", "state", "ends", "made"], rows)
}
