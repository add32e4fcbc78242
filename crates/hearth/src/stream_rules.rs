//! `hearth stream rule`: whose requests are of which class.

use crate::cli::StreamRule;
use crate::commands::Session;
use crate::failure::Failure;
use crate::table::{self, Align};
use api::{DaemonView, Done, StreamRuleNew, StreamRuleView, StreamRules};

impl Session {
    /// `hearth stream rule ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn stream_rule(&self, command: &StreamRule) -> Result<(), Failure> {
        match command {
            StreamRule::Add { process, session, client, cgroup, class } => {
                let subjects = [("process", process), ("session", session), ("client", client), ("cgroup", cgroup)];
                let Some((subject, pattern)) = subjects.into_iter().find_map(|(subject, pattern)| Some((subject, pattern.clone()?))) else {
                    return Ok(());
                };
                let new = StreamRuleNew { subject: subject.into(), pattern, class: class.clone() };
                let made: StreamRuleView = self.client.send("POST", "/stream-rules", &new)?;
                let watched = self.json || self.client.get::<DaemonView>("/daemon")?.insight_enabled;
                self.print(&made, |made| {
                    let id = made.id.unwrap_or_default();
                    let mut text = format!("rule {id}: requests of {} {} are of class {}\n", made.subject, made.pattern, made.class);
                    if !watched {
                        text +=
                            "it holds once loads are watched: set insight.enabled to true in the configuration and restart the daemon\n";
                    }
                    text
                })
            }
            StreamRule::List => self.print(&self.client.get::<StreamRules>("/stream-rules")?, stream_rules),
            StreamRule::Remove { id } => {
                let done: Done = self.client.delete(&format!("/stream-rules/{id}"))?;
                self.print(&done, |_| format!("rule {id} is gone\n"))
            }
        }
    }
}

fn stream_rules(told: &StreamRules) -> String {
    let head = [("ID", Align::Right), ("OF", Align::Left), ("NAME", Align::Left), ("CLASS", Align::Left)];
    let row = |rule: &StreamRuleView| {
        let id = rule.id.map_or_else(|| "built in".into(), |id| id.to_string());
        vec![id, rule.subject.clone(), rule.pattern.clone(), rule.class.clone()]
    };
    let mut text = table::layout(&head, &told.rules.iter().map(row).collect::<Vec<_>>());
    if !told.rules.iter().any(|rule| rule.id.is_some() && rule.subject != "client") {
        // A tap there costs time of each request, also of those that RAM answers.
        text += "On volumes those for processes are not asked yet, as each request must be seen on its way in for that: they are once a rule of \
                 your own names a process, a session or a control group, for instance \
                 `hearth stream rule add --process restic --class backup`, or a database there is connected.\n";
    }
    for sentence in &told.unseen {
        text += &format!("Who asks cannot be seen on {sentence}\n");
    }
    text
}
