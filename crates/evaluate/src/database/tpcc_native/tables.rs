//! The nine tables, as go-tpc makes them, and their rows by clause 4.3.3 of the standard.

use super::super::LONG;
use super::numbers::Numbers;
use super::wire::{Connection, Failure, Target};
use crate::stage::Stage;
use crate::trouble::Trouble;
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Rows of one INSERT.
const BATCH: usize = 500;
/// Connections that load.
const LOADERS: u32 = 4;
/// Districts of a warehouse.
pub(super) const DISTRICTS: u64 = 10;

/// How much a warehouse holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Items, and rows of stock of each warehouse.
    pub items: u64,
    /// Customers of each of ten districts, and orders there at the begin.
    pub customers: u64,
}

impl Scale {
    /// As the standard has it: about 100 MB.
    pub const STANDARD: Scale = Scale { items: 100_000, customers: 3000 };
    /// For tests of the tests.
    pub const TOY: Scale = Scale { items: 400, customers: 30 };
}

impl Scale {
    /// What a name of something of this size ends with; nothing for the standard's.
    pub(in super::super) fn suffix(&self) -> String {
        if *self == Scale::STANDARD { String::new() } else { format!("-{}-{}", self.items, self.customers) }
    }

    /// Of so many bytes that a warehouse of the standard has, those of one of this size, and a little.
    pub(in super::super) fn share_of(&self, bytes: u64) -> u64 {
        // Stock is a third of it, the rest goes with customers.
        let (stock, rest) = (bytes / 3, bytes * 2 / 3);
        stock * self.items / Scale::STANDARD.items + rest * self.customers / Scale::STANDARD.customers
    }
}

/// Makes the tables in a database that is there and fills them.
///
/// # Errors
/// If the server refuses something, or the user wants an end.
pub fn prepare(stage: &Stage, target: &Target, database: &str, warehouses: u32, scale: Scale) -> Result<(), Trouble> {
    stage.say(format!("# hearth's own TPC-C loader: {warehouses} warehouses, database {database}"));
    let failed = |failure: Failure| match failure {
        Failure::Retry(text) | Failure::Final(text) => Trouble::Failed(format!("TPC-C cannot be loaded: {text}")),
    };
    let mut first = Connection::open(target, database)?;
    for statement in statements(target) {
        first.query(&statement).map_err(failed)?;
    }
    Loader { connection: first, numbers: Numbers::new(0, scale), stage }.items()?;
    let next = AtomicU32::new(1);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let load = || -> Result<(), Trouble> {
            loop {
                let warehouse = next.fetch_add(1, Ordering::Relaxed);
                if warehouse > warehouses {
                    return Ok(());
                }
                if began.elapsed() > LONG {
                    return Err(Trouble::Failed(format!("TPC-C is not loaded within {} s", LONG.as_secs())));
                }
                let connection = Connection::open(target, database)?;
                Loader { connection, numbers: Numbers::new(u64::from(warehouse) << 40, scale), stage }.warehouse(u64::from(warehouse))?;
            }
        };
        let loaders: Vec<_> = (0..LOADERS.min(warehouses)).map(|_| scope.spawn(load)).collect();
        loaders.into_iter().try_for_each(|loader| loader.join().unwrap_or_else(|_| Err(Trouble::Failed("a loader of TPC-C ended".into()))))
    })
}

/// The tables for a server. MariaDB has indexes within them, PostgreSQL beside them.
fn statements(target: &Target) -> Vec<String> {
    let tables =
        TABLES.replace("{people}", "street_1 VARCHAR(20), {p}street_2 VARCHAR(20), {p}city VARCHAR(20), {p}state CHAR(2), {p}zip CHAR(9)");
    let whole = |table: &str| {
        let prefix = table.split("{of:").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default().to_owned();
        let table = table.replace(&format!("{{of:{prefix}}}"), "").replace("{p}", &prefix);
        let time = if matches!(target, Target::MariaDb { .. }) { "DATETIME" } else { "TIMESTAMP" };
        table.replace("{time}", time).trim().to_owned()
    };
    let mut statements: Vec<String> = tables.split(';').map(whole).filter(|statement| !statement.is_empty()).collect();
    statements.extend(INDEXES.iter().map(|index| (*index).to_owned()));
    statements
}

const INDEXES: [&str; 4] = [
    "CREATE INDEX idx_customer ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX idx_h_w_id ON history (h_w_id)",
    "CREATE INDEX idx_h_c_w_id ON history (h_c_w_id)",
    "CREATE INDEX idx_order ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];

const TABLES: &str = "
CREATE TABLE warehouse {of:w_}(w_id INT NOT NULL, w_name VARCHAR(10), {p}{people}, w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2), PRIMARY KEY (w_id));
CREATE TABLE district {of:d_}(d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10), {p}{people}, d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2),
    d_next_o_id INT, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer {of:c_}(c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16), c_middle CHAR(2), c_last VARCHAR(16),
    {p}{people}, c_phone CHAR(16), c_since {time}, c_credit CHAR(2), c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2),
    c_ytd_payment DECIMAL(12,2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE history (h_c_id INT NOT NULL, h_c_d_id INT NOT NULL, h_c_w_id INT NOT NULL, h_d_id INT NOT NULL, h_w_id INT NOT NULL, h_date {time},
    h_amount DECIMAL(6,2), h_data VARCHAR(24));
CREATE TABLE new_order (no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE orders (o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT, o_entry_d {time}, o_carrier_id INT, o_ol_cnt INT,
    o_all_local INT, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE order_line (ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, ol_number INT NOT NULL, ol_i_id INT NOT NULL,
    ol_supply_w_id INT, ol_delivery_d {time}, ol_quantity INT, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24),
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE stock (s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT, s_dist_01 CHAR(24), s_dist_02 CHAR(24), s_dist_03 CHAR(24),
    s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24), s_dist_07 CHAR(24), s_dist_08 CHAR(24), s_dist_09 CHAR(24), s_dist_10 CHAR(24),
    s_ytd INT, s_order_cnt INT, s_remote_cnt INT, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE item (i_id INT NOT NULL, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50), PRIMARY KEY (i_id));
";

struct Loader<'a> {
    connection: Connection,
    numbers: Numbers,
    stage: &'a Stage,
}

impl Loader<'_> {
    /// Rows for a table, many at a time.
    fn insert(&mut self, table: &str, rows: &[String]) -> Result<(), Trouble> {
        for batch in rows.chunks(BATCH) {
            self.stage.go_on()?;
            let statement = format!("INSERT INTO {table} VALUES {}", batch.join(","));
            self.connection.query(&statement).map_err(|failure| match failure {
                Failure::Retry(text) | Failure::Final(text) => Trouble::Failed(format!("TPC-C cannot be loaded: {text}")),
            })?;
        }
        Ok(())
    }

    fn items(&mut self) -> Result<(), Trouble> {
        let items = self.numbers.scale.items;
        let rows: Vec<String> = (1..=items)
            .map(|item| {
                let n = &mut self.numbers;
                let (image, name, price, data) = (n.between(1, 10_000), n.text(14, 24), n.money(100, 10_000), n.maybe_original());
                format!("({item},{image},'{name}',{price:.2},'{data}')")
            })
            .collect();
        self.insert("item", &rows)
    }

    fn warehouse(&mut self, warehouse: u64) -> Result<(), Trouble> {
        let head = format!("({warehouse},'{}',{},{:.4},300000.00)", self.numbers.text(6, 10), self.address(), self.tax());
        self.insert("warehouse", &[head])?;
        let stock: Vec<String> = (1..=self.numbers.scale.items)
            .map(|item| {
                let mut row = format!("({item},{warehouse},{}", self.numbers.between(10, 100));
                for _ in 0..DISTRICTS {
                    let _ = write!(row, ",'{}'", self.numbers.text(24, 24));
                }
                let _ = write!(row, ",0,0,0,'{}')", self.numbers.maybe_original());
                row
            })
            .collect();
        self.insert("stock", &stock)?;
        (1..=DISTRICTS).try_for_each(|district| self.district(warehouse, district))
    }

    fn district(&mut self, warehouse: u64, district: u64) -> Result<(), Trouble> {
        let customers = self.numbers.scale.customers;
        let (name, address, tax) = (self.numbers.text(6, 10), self.address(), self.tax());
        self.insert("district", &[format!("({district},{warehouse},'{name}',{address},{tax:.4},30000.00,{})", customers + 1)])?;
        let (mut people, mut history) = (Vec::new(), Vec::new());
        for customer in 1..=customers {
            let address = self.address();
            let n = &mut self.numbers;
            let (first, last, phone) = (n.text(8, 16), n.loaded_last_name(customer), n.digits(16));
            let credit = if n.between(1, 10) == 1 { "BC" } else { "GC" };
            let (discount, data) = (n.between(0, 5000) as f64 / 1e4, n.text(300, 500));
            people.push(format!(
                "({customer},{district},{warehouse},'{first}','OE','{last}',{address},'{phone}',CURRENT_TIMESTAMP,'{credit}',50000.00,{discount:.4},\
                 -10.00,10.00,1,0,'{data}')"
            ));
            let note = n.text(12, 24);
            history.push(format!("({customer},{district},{warehouse},{district},{warehouse},CURRENT_TIMESTAMP,10.00,'{note}')"));
        }
        self.insert("customer", &people)?;
        self.insert("history", &history)?;
        self.orders(warehouse, district)
    }

    /// One for each customer, in random order; the latest three of ten are not delivered yet.
    fn orders(&mut self, warehouse: u64, district: u64) -> Result<(), Trouble> {
        let customers = self.numbers.scale.customers;
        let delivered = customers * 7 / 10;
        let (mut orders, mut open, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for (order, customer) in (1..).zip(self.numbers.shuffled(customers)) {
            let n = &mut self.numbers;
            let count = n.between(5, 15);
            let carrier = if order <= delivered { n.between(1, 10).to_string() } else { "NULL".into() };
            orders.push(format!("({order},{district},{warehouse},{customer},CURRENT_TIMESTAMP,{carrier},{count},1)"));
            if order > delivered {
                open.push(format!("({order},{district},{warehouse})"));
            }
            for line in 1..=count {
                let (item, info) = (n.between(1, n.scale.items), n.text(24, 24));
                let (when, amount) = if order <= delivered { ("CURRENT_TIMESTAMP", 0.0) } else { ("NULL", n.money(1, 999_999)) };
                lines.push(format!("({order},{district},{warehouse},{line},{item},{warehouse},{when},5,{amount:.2},'{info}')"));
            }
        }
        self.insert("orders", &orders)?;
        self.insert("new_order", &open)?;
        self.insert("order_line", &lines)
    }

    /// Two streets, a city, a state and a code.
    fn address(&mut self) -> String {
        let n = &mut self.numbers;
        let (one, two, city) = (n.text(10, 20), n.text(10, 20), n.text(10, 20));
        format!("'{one}','{two}','{city}','{}','{}11111'", n.text(2, 2), n.digits(4))
    }

    fn tax(&mut self) -> f64 {
        self.numbers.between(0, 2000) as f64 / 1e4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_for_their_server() {
        let mariadb = statements(&Target::MariaDb { socket: String::new() });
        let postgres = statements(&Target::Postgres { host: String::new(), port: 1 });
        assert_eq!((mariadb.len(), postgres.len()), (13, 13));
        assert!(
            mariadb[0].contains("(w_id INT NOT NULL, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20)"),
            "{}",
            mariadb[0]
        );
        assert!(mariadb[3].contains("h_date DATETIME") && postgres[3].contains("h_date TIMESTAMP"));
        assert!(mariadb.iter().chain(&postgres).all(|statement| !statement.contains(['{', '}', ';'])));
    }
}
