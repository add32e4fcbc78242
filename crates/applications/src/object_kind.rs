//! What objects of databases are.

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// A table: of InnoDB the file of a table, with all that is in it and has no number of its own.
    Table,
    /// An index; of InnoDB a secondary one.
    Index,
    /// Values too long for their rows.
    Lob,
    /// Those of PostgreSQL.
    Toast,
    /// Undo records.
    Undo,
    /// InnoDB's redo log, or the log of SQL Server.
    Redo,
    /// PostgreSQL's write-ahead log.
    Wal,
    /// The binary log of MySQL or MariaDB.
    Binlog,
    /// InnoDB's doublewrite buffer, where it has files of its own.
    Doublewrite,
    /// Temporary tables.
    Temporary,
    /// The server's own dictionary; also a system tablespace.
    Dictionary,
    /// Not known.
    Unknown,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [ObjectKind; 12] = [
        ObjectKind::Table,
        ObjectKind::Index,
        ObjectKind::Lob,
        ObjectKind::Toast,
        ObjectKind::Undo,
        ObjectKind::Redo,
        ObjectKind::Wal,
        ObjectKind::Binlog,
        ObjectKind::Doublewrite,
        ObjectKind::Temporary,
        ObjectKind::Dictionary,
        ObjectKind::Unknown,
    ];

    /// The word used on the command line, in JSON and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::Index => "index",
            ObjectKind::Lob => "lob",
            ObjectKind::Toast => "toast",
            ObjectKind::Undo => "undo",
            ObjectKind::Redo => "redo",
            ObjectKind::Wal => "wal",
            ObjectKind::Binlog => "binlog",
            ObjectKind::Doublewrite => "doublewrite",
            ObjectKind::Temporary => "temp",
            ObjectKind::Dictionary => "dictionary",
            ObjectKind::Unknown => "unknown",
        }
    }
}
