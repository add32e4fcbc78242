//! `hearth token` and `hearth console`: who may ask over TCP.

use crate::cli::Token;
use crate::commands::Session;
use crate::failure::Failure;
use crate::request;
use crate::table::{self, Align};
use api::human;
use api::names::Named;
use api::{Done, LoginCode, Role, TokenCreate, TokenMade, TokenView};
use records::events::unix_s;

impl Session {
    /// `hearth console`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn console(&self) -> Result<(), Failure> {
        let code: LoginCode = self.client.post("/session/code")?;
        self.print(&code, |code| format!("{}\n", code.url))
    }

    /// `hearth token ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn token(&self, command: &Token) -> Result<(), Failure> {
        match command {
            Token::Create { name, role } => {
                let body = TokenCreate { name: request::name(Named::Token, name)?.into(), role: read_role(role)? };
                let made: TokenMade = self.client.send("POST", "/tokens", &body)?;
                self.print(&made, |made| format!("{}\n", made.token))
            }
            Token::List => self.print(&self.client.get::<Vec<TokenView>>("/tokens")?, |tokens| listed(tokens)),
            Token::Revoke { name } => {
                let path = format!("/tokens/{}", request::name(Named::Token, name)?);
                self.print(&self.client.delete::<Done>(&path)?, |_| format!("token {name} revoked\n"))
            }
        }
    }
}

fn read_role(word: &str) -> Result<Role, Failure> {
    match word {
        "view" => Ok(Role::View),
        "operate" => Ok(Role::Operate),
        _ => Err(Failure::usage(format!("--role has the unknown value {word:?}"), "use view (look at everything) or operate (everything)")),
    }
}

fn listed(tokens: &[TokenView]) -> String {
    if tokens.is_empty() {
        return "no tokens; create one with `hearth token create NAME --role view`\n".into();
    }
    let row = |token: &TokenView| {
        let role = if token.role == Role::Operate { "operate" } else { "view" };
        let age_s = unix_s().saturating_sub(token.created_unix_s);
        vec![token.name.clone(), role.into(), format!("{} ago", human::seconds(age_s))]
    };
    table::layout(&[("NAME", Align::Left), ("ROLE", Align::Left), ("MADE", Align::Left)], &tokens.iter().map(row).collect::<Vec<_>>())
}
