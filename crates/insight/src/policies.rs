//! Policies of objects: what is asked for, and what follows for one object.

use super::objects::is_log;
use api::object_rules::{Rule, RuleOf};
use applications::discovery::Object;
use std::collections::BTreeSet;
use types::{Admit, ObjectWrites, OnScan, Treatment};

/// What is asked of one object.
#[derive(Clone)]
pub struct Wanted<'a> {
    /// It.
    pub object: &'a Object,
    /// The data directory of its application.
    pub instance: Option<&'a str>,
    /// The rule; when rules are taken away: the objects that it is for.
    pub rule: Rule,
}

/// Adds a rule, in place of one for the same objects.
pub fn put(rules: &mut Vec<Rule>, rule: &Rule) {
    rules.retain(|known| !known.is_for_what(rule));
    rules.push(rule.clone());
}

/// Takes rules away, so that objects are treated as their kind is by default. Rules for others that would still say otherwise of them stay,
/// and are overruled; they are given back.
pub fn reset(rules: &mut Vec<Rule>, wanted: &[Wanted]) -> Vec<Rule> {
    let names: BTreeSet<&str> = wanted.iter().map(|one| one.object.name.as_str()).collect();
    for (index, Wanted { rule: scope, .. }) in wanted.iter().enumerate() {
        // Where all of a kind or an application are meant, each says the same.
        if index > 0 && wanted[index - 1].rule.is_for_what(scope) {
            continue;
        }
        let is_within = |known: &Rule| match (&scope.of, &known.of) {
            (RuleOf::All, _) => true,
            (RuleOf::Kind(kind), RuleOf::Kind(of)) => kind == of,
            (RuleOf::Kind(_), RuleOf::Object(name)) => names.contains(name.as_str()),
            (RuleOf::Object(_), _) => known.of == scope.of,
            (RuleOf::Kind(_), RuleOf::All) => false,
        };
        let all_instances = scope.instance.is_none() && !matches!(scope.of, RuleOf::Object(_));
        rules.retain(|known| !(is_within(known) && (all_instances || known.instance == scope.instance)));
    }
    let mut wider: Vec<Rule> = Vec::new();
    for Wanted { object, instance, rule: scope } in wanted {
        let (treatment, by) = treatment_of(object, *instance, rules);
        let default = by_kind(object);
        let Some(by) = by.filter(|_| treatment != default).cloned() else { continue };
        let of = match &scope.of {
            RuleOf::All => RuleOf::Kind(object.kind.name().into()),
            narrower => narrower.clone(),
        };
        let (admit, writes, on_scan) = (default.admit(), default.writes(), default.on_scan());
        put(rules, &Rule { instance: scope.instance.clone(), of, admit, writes, on_scan });
        if !wider.contains(&by) {
            wider.push(by);
        }
    }
    wider
}

/// How an object is treated: the narrowest rule decides. `None` beside it: no rule is for it, and its kind does.
pub fn treatment_of<'a>(object: &Object, instance: Option<&str>, rules: &'a [Rule]) -> (Treatment, Option<&'a Rule>) {
    let rule = rules.iter().filter(|rule| rule.is_for(object, instance)).max_by_key(|rule| rule.weight());
    (rule.map_or_else(|| by_kind(object), Rule::treatment), rule)
}

/// Logs and temporary tables go around the cache; in write-back the write cache takes them, and they are not kept.
fn by_kind(object: &Object) -> Treatment {
    if is_log(object.kind) { Treatment::new(Admit::Never, ObjectWrites::Inherit, OnScan::HitOnly) } else { Treatment::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::discovery::{ApplicationId, Evidence, Key, ObjectKind};
    use types::ObjectId;

    fn object(name: &str, kind: ObjectKind) -> Object {
        Object {
            id: ObjectId(1),
            application: ApplicationId(1),
            database: None,
            kind,
            name: name.into(),
            key: Key::Kind(kind),
            within: None,
            bytes: 0,
            extents: 0,
            path: String::new(),
            encrypted: false,
            evidence: Evidence::default(),
        }
    }

    fn rule(instance: Option<&str>, of: RuleOf, admit: Admit) -> Rule {
        Rule { instance: instance.map(Into::into), of, admit, writes: ObjectWrites::Inherit, on_scan: OnScan::HitOnly }
    }

    #[test]
    fn the_narrowest_rule_decides_and_kinds_have_defaults() {
        let (table, log) = (object("shop.orders", ObjectKind::Table), object("redo", ObjectKind::Redo));
        let admit = |object: &Object, instance, rules: &[Rule]| treatment_of(object, instance, rules).0.admit();
        assert_eq!((admit(&table, None, &[]), admit(&log, None, &[])), (Admit::Normal, Admit::Never));
        let mut rules = vec![
            rule(None, RuleOf::Object("shop.orders".into()), Admit::Pinned),
            rule(None, RuleOf::Kind("table".into()), Admit::Never),
            rule(Some("lib/mysql"), RuleOf::All, Admit::Never),
        ];
        assert_eq!(admit(&table, Some("lib/mysql"), &rules), Admit::Pinned);
        assert_eq!(admit(&object("shop.items", ObjectKind::Table), None, &rules), Admit::Never);
        assert_eq!(admit(&object("shop.ix", ObjectKind::Index), Some("lib/mysql"), &rules), Admit::Never);
        assert_eq!(admit(&object("shop.ix", ObjectKind::Index), Some("other"), &rules), Admit::Normal);
        put(&mut rules, &rule(None, RuleOf::Object("shop.orders".into()), Admit::Never));
        assert_eq!((rules.len(), admit(&table, None, &rules)), (3, Admit::Never));
        put(&mut rules, &rule(None, RuleOf::Kind("redo".into()), Admit::Normal));
        assert_eq!(admit(&log, None, &rules), Admit::Normal, "a rule goes before what a kind has");
    }

    #[test]
    fn after_a_reset_the_default_holds_whatever_rules_there_were() {
        let (orders, items, log) =
            (object("shop.orders", ObjectKind::Table), object("shop.items", ObjectKind::Table), object("redo", ObjectKind::Redo));
        let mysql = Some("lib/mysql");
        let kind = |instance| rule(instance, RuleOf::Kind("table".into()), Admit::Pinned);
        let named = |name: &str| rule(mysql, RuleOf::Object(name.into()), Admit::Never);
        let admits = |rules: &[Rule]| [&orders, &items, &log].map(|object| treatment_of(object, mysql, rules).0.admit());
        let wanted = |objects: &[&'static str], rule: Rule| -> Vec<Wanted> {
            let object = |name: &&str| [&orders, &items, &log].into_iter().find(|object| object.name == **name).expect("one of them");
            objects.iter().map(|name| Wanted { object: object(name), instance: mysql, rule: rule.clone() }).collect()
        };
        // One of those that a rule for all of a kind pins: that rule stays for the others, and is told.
        let mut rules = vec![kind(None), named("shop.orders")];
        assert_eq!(reset(&mut rules, &wanted(&["shop.orders"], named("shop.orders"))), [kind(None)]);
        assert_eq!(admits(&rules), [Admit::Normal, Admit::Pinned, Admit::Never]);
        assert_eq!(reset(&mut rules, &wanted(&["shop.orders"], named("shop.orders"))), [kind(None)], "once more");
        assert_eq!((rules.len(), admits(&rules)), (2, [Admit::Normal, Admit::Pinned, Admit::Never]));
        // All of the kind: what was said of single ones goes, too.
        assert_eq!(reset(&mut rules, &wanted(&["shop.orders", "shop.items"], kind(None))), []);
        assert_eq!((rules.len(), admits(&rules)), (0, [Admit::Normal, Admit::Normal, Admit::Never]));
        // All of the application, with a rule for the kind wherever it is.
        let all = rule(mysql, RuleOf::All, Admit::Pinned);
        let mut rules = vec![kind(None), kind(mysql), named("shop.items"), named("shop.gone"), all.clone()];
        assert_eq!(reset(&mut rules, &wanted(&["redo", "shop.items", "shop.orders"], all)), [kind(None)]);
        assert_eq!((rules.len(), admits(&rules)), (2, [Admit::Normal, Admit::Normal, Admit::Never]));
        assert_eq!(treatment_of(&items, Some("other"), &rules).0.admit(), Admit::Pinned, "elsewhere it holds");
    }
}
