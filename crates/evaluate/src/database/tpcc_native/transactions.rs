//! The five transactions of TPC-C (clauses 2.4 to 2.8 of the standard), in the mix that go-tpc deals them.

use super::numbers::Numbers;
use super::tables::DISTRICTS;
use super::wire::{Connection, Failure, Rows};
use std::collections::BTreeMap;

/// Which transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// How often each, in a hundred.
const MIX: [(Kind, usize); 5] =
    [(Kind::NewOrder, 45), (Kind::Payment, 43), (Kind::OrderStatus, 4), (Kind::Delivery, 4), (Kind::StockLevel, 4)];

/// One connection and what it draws.
pub(super) struct Terminal {
    connection: Connection,
    numbers: Numbers,
    warehouses: u64,
    deck: Vec<Kind>,
}

impl Terminal {
    pub fn new(connection: Connection, numbers: Numbers, warehouses: u32) -> Terminal {
        Terminal { connection, numbers, warehouses: u64::from(warehouses), deck: Vec::new() }
    }

    /// The next card of a shuffled deck of a hundred: the mix is exact (clause 5.2.4.2).
    pub fn deal(&mut self) -> Kind {
        if self.deck.is_empty() {
            let cards: Vec<Kind> = MIX.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count)).collect();
            self.deck = self.numbers.shuffled(cards.len() as u64).into_iter().map(|at| cards[at as usize - 1]).collect();
        }
        self.deck.pop().expect("it was just filled")
    }

    /// Performs one, and leaves no transaction open whether or not it succeeds.
    pub fn perform(&mut self, kind: Kind) -> Result<(), Failure> {
        self.query("BEGIN")?;
        let end = match kind {
            Kind::NewOrder => self.new_order(),
            Kind::Payment => self.payment().map(|()| "COMMIT"),
            Kind::OrderStatus => self.order_status().map(|()| "COMMIT"),
            Kind::Delivery => self.delivery().map(|()| "COMMIT"),
            Kind::StockLevel => self.stock_level().map(|()| "COMMIT"),
        };
        match end.and_then(|end| self.query(end)) {
            Ok(_) => Ok(()),
            Err(failure) => {
                // What was in the way is told, not what came of it.
                let _ = self.query("ROLLBACK");
                Err(failure)
            }
        }
    }

    fn query(&mut self, statement: &str) -> Result<Rows, Failure> {
        self.connection.query(statement)
    }

    /// The one row that there must be.
    fn row(&mut self, statement: &str) -> Result<Vec<Option<String>>, Failure> {
        self.query(statement)?.into_iter().next().ok_or_else(|| Failure::Final(format!("no row for `{statement}`")))
    }

    fn place(&mut self) -> (u64, u64) {
        (self.numbers.between(1, self.warehouses), self.numbers.between(1, DISTRICTS))
    }

    fn other_warehouse(&mut self, own: u64) -> u64 {
        if self.warehouses == 1 {
            return own;
        }
        let other = self.numbers.between(1, self.warehouses - 1);
        other + u64::from(other >= own)
    }

    /// Clause 2.4. Gives how it ends: one in a hundred asks for an item that is not there, and is taken back.
    fn new_order(&mut self) -> Result<&'static str, Failure> {
        let (w, d) = self.place();
        let customer = self.numbers.customer();
        let count = self.numbers.between(5, 15);
        let unused = self.numbers.between(1, 100) == 1;
        // By item: each is asked for once, from a warehouse, so many.
        let mut wanted: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        while (wanted.len() as u64) < count {
            let item = self.numbers.item();
            let supplier = if self.numbers.between(1, 100) == 1 { self.other_warehouse(w) } else { w };
            let quantity = self.numbers.between(1, 10);
            wanted.entry(item).or_insert((supplier, quantity));
        }
        let local = u8::from(wanted.values().all(|(supplier, _)| *supplier == w));
        let person = self.row(&format!(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = {w} AND c_w_id = w_id AND c_d_id = {d} AND c_id = {customer}"
        ))?;
        let district = self.row(&format!("SELECT d_next_o_id, d_tax FROM district WHERE d_id = {d} AND d_w_id = {w} FOR UPDATE"))?;
        let order = whole(&district, 0)?;
        self.query(&format!("UPDATE district SET d_next_o_id = {} WHERE d_id = {d} AND d_w_id = {w}", order + 1))?;
        self.query(&format!(
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
             VALUES ({order}, {d}, {w}, {customer}, CURRENT_TIMESTAMP, {count}, {local})"
        ))?;
        self.query(&format!("INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ({order}, {d}, {w})"))?;
        let mut asked: Vec<u64> = wanted.keys().copied().collect();
        if unused {
            *asked.last_mut().expect("there are five at least") = self.numbers.scale.items + 1;
        }
        let found = self.query(&format!("SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id IN ({})", joined(&asked)))?;
        if found.len() < asked.len() {
            return if unused { Ok("ROLLBACK") } else { Err(Failure::Final("an item is not there".into())) };
        }
        let pairs: Vec<String> = wanted.iter().map(|(item, (supplier, _))| format!("({supplier},{item})")).collect();
        let stock = self.query(&format!(
            "SELECT s_i_id, s_quantity, s_data, s_dist_{d:02} FROM stock WHERE (s_w_id, s_i_id) IN ({}) FOR UPDATE",
            pairs.join(",")
        ))?;
        if stock.len() < asked.len() {
            return Err(Failure::Final("an item is not in stock".into()));
        }
        let factor = (1.0 + number(&person, 3)? + number(&district, 1)?) * (1.0 - number(&person, 0)?);
        let mut prices = BTreeMap::new();
        for item in &found {
            prices.insert(whole(item, 0)?, number(item, 1)?);
        }
        let mut lines = Vec::new();
        for row in &stock {
            let item = whole(row, 0)?;
            let (supplier, quantity) = wanted[&item];
            let left = whole(row, 1)?;
            let left = if left >= quantity + 10 { left - quantity } else { left + 91 - quantity };
            let remote = u8::from(supplier != w);
            self.query(&format!(
                "UPDATE stock SET s_quantity = {left}, s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + {remote} \
                 WHERE s_i_id = {item} AND s_w_id = {supplier}"
            ))?;
            // The column has six digits; the largest amount has seven.
            let amount = (quantity as f64 * prices.get(&item).copied().unwrap_or_default() * factor).min(9999.99);
            let info = row.get(3).cloned().flatten().unwrap_or_default();
            lines.push(format!("({order},{d},{w},{},{item},{supplier},{quantity},{amount:.2},'{info}')", lines.len() + 1));
        }
        self.query(&format!(
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES {}",
            lines.join(",")
        ))?;
        Ok("COMMIT")
    }

    /// A customer of a district: by last name (the middle one of all with it) six times of ten, else by number. Clauses 2.5.2.2 and 2.6.2.2.
    fn customer(&mut self, w: u64, d: u64) -> Result<u64, Failure> {
        if self.numbers.between(1, 100) > 60 {
            return Ok(self.numbers.customer());
        }
        let last = self.numbers.last_name();
        let all =
            self.query(&format!("SELECT c_id FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{last}' ORDER BY c_first"))?;
        let middle = all.get(all.len().div_ceil(2).saturating_sub(1));
        whole(middle.ok_or_else(|| Failure::Final(format!("nobody is called {last}")))?, 0)
    }

    /// Clause 2.5.
    fn payment(&mut self) -> Result<(), Failure> {
        let (w, d) = self.place();
        let amount = self.numbers.money(100, 500_000);
        let remote = self.numbers.between(1, 100) > 85 && self.warehouses > 1;
        let (c_w, c_d) = if remote { (self.other_warehouse(w), self.numbers.between(1, DISTRICTS)) } else { (w, d) };
        self.query(&format!("UPDATE district SET d_ytd = d_ytd + {amount:.2} WHERE d_w_id = {w} AND d_id = {d}"))?;
        let names = "street_1, {}street_2, {}city, {}state, {}zip, {}name";
        let of = |prefix: &str| format!("{prefix}{}", names.replace("{}", prefix));
        let district = self.row(&format!("SELECT {} FROM district WHERE d_w_id = {w} AND d_id = {d}", of("d_")))?;
        self.query(&format!("UPDATE warehouse SET w_ytd = w_ytd + {amount:.2} WHERE w_id = {w}"))?;
        let warehouse = self.row(&format!("SELECT {} FROM warehouse WHERE w_id = {w}", of("w_")))?;
        let customer = self.customer(c_w, c_d)?;
        let key = format!("c_w_id = {c_w} AND c_d_id = {c_d} AND c_id = {customer}");
        let person = self.row(&format!(
            "SELECT c_credit, c_first, c_middle, c_last, {}, c_phone, c_credit_lim, c_discount, c_balance, c_since FROM customer WHERE {key} FOR UPDATE",
            of("c_").replace(", c_name", "")
        ))?;
        let update = format!(
            "UPDATE customer SET c_balance = c_balance - {amount:.2}, c_ytd_payment = c_ytd_payment + {amount:.2}, c_payment_cnt = c_payment_cnt + 1"
        );
        if text(&person, 0) == "BC" {
            let data = self.row(&format!("SELECT c_data FROM customer WHERE {key}"))?;
            let mut data = format!("{customer} {c_d} {c_w} {d} {w} {amount:.2} {}", text(&data, 0));
            data.truncate(500);
            self.query(&format!("{update}, c_data = '{data}' WHERE {key}"))?;
        } else {
            self.query(&format!("{update} WHERE {key}"))?;
        }
        let note = format!("{}    {}", text(&warehouse, 5), text(&district, 5));
        self.query(&format!(
            "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
             VALUES ({c_d}, {c_w}, {customer}, {d}, {w}, CURRENT_TIMESTAMP, {amount:.2}, '{note}')"
        ))?;
        Ok(())
    }

    /// Clause 2.6.
    fn order_status(&mut self) -> Result<(), Failure> {
        let (w, d) = self.place();
        let customer = self.customer(w, d)?;
        self.row(&format!(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {customer}"
        ))?;
        let order = self.row(&format!(
            "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {customer} ORDER BY o_id DESC LIMIT 1"
        ))?;
        self.query(&format!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {}",
            whole(&order, 0)?
        ))?;
        Ok(())
    }

    /// Clause 2.7: the oldest open order of each district, if there is one.
    fn delivery(&mut self) -> Result<(), Failure> {
        let w = self.numbers.between(1, self.warehouses);
        let carrier = self.numbers.between(1, 10);
        for d in 1..=DISTRICTS {
            let open = self.query(&format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
            ))?;
            let Some(open) = open.first() else { continue };
            let order = whole(open, 0)?;
            self.query(&format!("DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {order}"))?;
            let key = format!("o_w_id = {w} AND o_d_id = {d} AND o_id = {order}");
            // In this order: a snapshot of MariaDB's may be older than the order, and shows it once this transaction has changed it.
            self.query(&format!("UPDATE orders SET o_carrier_id = {carrier} WHERE {key}"))?;
            let customer = whole(&self.row(&format!("SELECT o_c_id FROM orders WHERE {key}"))?, 0)?;
            let lines = format!("ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}");
            self.query(&format!("UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE {lines}"))?;
            let sum = number(&self.row(&format!("SELECT SUM(ol_amount) FROM order_line WHERE {lines}"))?, 0)?;
            self.query(&format!(
                "UPDATE customer SET c_balance = c_balance + {sum:.2}, c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {customer}"
            ))?;
        }
        Ok(())
    }

    /// Clause 2.8.
    fn stock_level(&mut self) -> Result<(), Failure> {
        let (w, d) = self.place();
        let least = self.numbers.between(10, 20);
        let next = whole(&self.row(&format!("SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}"))?, 0)?;
        self.row(&format!(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id < {next} AND ol_o_id >= {} \
             AND s_w_id = {w} AND s_i_id = ol_i_id AND s_quantity < {least}",
            next.saturating_sub(20)
        ))?;
        Ok(())
    }
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn text(row: &[Option<String>], at: usize) -> &str {
    row.get(at).and_then(Option::as_deref).unwrap_or_default()
}

fn number(row: &[Option<String>], at: usize) -> Result<f64, Failure> {
    text(row, at).parse().map_err(|_| Failure::Final(format!("not a number: {}", text(row, at))))
}

fn whole(row: &[Option<String>], at: usize) -> Result<u64, Failure> {
    text(row, at).parse().map_err(|_| Failure::Final(format!("not a whole number: {}", text(row, at))))
}
