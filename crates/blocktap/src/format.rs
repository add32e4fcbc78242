//! Where the fields of a tracepoint's record lie, as its `format` file says. They differ between
//! kernels, so nothing is assumed.

/// A field of the record that programs get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// From the start of the record.
    pub offset: u16,
    /// Its length.
    pub bytes: u16,
}

/// The fields of `block_bio_queue` that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BioQueue {
    /// The disk, 4 bytes.
    pub dev: Field,
    /// First sector, 8 bytes (4 on old 32-bit kernels).
    pub sector: Field,
    /// How many, 4 bytes.
    pub nr_sector: Field,
    /// Letters of the operation and its flags.
    pub rwbs: Field,
}

/// The kernel's own limit of a record (`PERF_MAX_TRACE_SIZE`).
const RECORD_BYTES_MAX: u16 = 8192;
/// The first 8 bytes of a record are not for programs: the kernel has a pointer there.
const HIDDEN_BYTES: u16 = 8;
/// Most letters that any kernel had so far is 10 (Linux 6.18).
pub const LETTERS_MAX: u16 = 12;

impl BioQueue {
    /// # Errors
    /// What is missing or not as a program needs it, in words.
    pub fn parse(text: &str) -> Result<BioQueue, String> {
        let field = |name: &str, sizes: &[u16]| {
            let field = text.lines().find_map(|line| field(line, name)).ok_or_else(|| format!("it has no field `{name}`"))?;
            let aligned = name == "rwbs" || field.offset % field.bytes.max(1) == 0;
            let within = field.offset >= HIDDEN_BYTES && field.offset.saturating_add(field.bytes) <= RECORD_BYTES_MAX;
            if sizes.contains(&field.bytes) && aligned && within {
                Ok(field)
            } else {
                Err(format!("its field `{name}` has {} bytes at {}", field.bytes, field.offset))
            }
        };
        let letters: Vec<u16> = (1..=LETTERS_MAX).collect();
        Ok(BioQueue {
            dev: field("dev", &[4])?,
            sector: field("sector", &[4, 8])?,
            nr_sector: field("nr_sector", &[4])?,
            rwbs: field("rwbs", &letters)?,
        })
    }
}

/// `field:char rwbs[8]; offset:28; size:8; signed:0;`
fn field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    // What the record holds of a dynamic array is only where it lies.
    if declared.starts_with("__") {
        return None;
    }
    let declared = declared.rsplit_once(' ')?.1;
    let declared = declared.split_once('[').map_or(declared, |(name, _)| name);
    if declared != name {
        return None;
    }
    let (mut offset, mut bytes) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", number)) => offset = number.parse().ok(),
            Some(("size", number)) => bytes = number.parse().ok(),
            _ => {}
        }
    }
    Some(Field { offset: offset?, bytes: bytes? })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What Linux 6.18 says.
    pub(crate) const LINUX_6_18: &str = "name: block_bio_queue
ID: 2097
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:sector_t sector;	offset:16;	size:8;	signed:0;
	field:unsigned int nr_sector;	offset:24;	size:4;	signed:0;
	field:char rwbs[10];	offset:28;	size:10;	signed:0;
	field:char comm[16];	offset:38;	size:16;	signed:0;

print fmt: \"%d,%d %s %llu + %u [%s]\", ((unsigned int) ((REC->dev) >> 20)), REC->comm
";

    #[test]
    fn fields_are_where_the_kernel_says() {
        let found = BioQueue::parse(LINUX_6_18).expect("valid");
        let field = |offset, bytes| Field { offset, bytes };
        let expected = BioQueue { dev: field(8, 4), sector: field(16, 8), nr_sector: field(24, 4), rwbs: field(28, 10) };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_a_program_could_not_read_is_refused_with_its_name() {
        let check = |from: &str, to: &str, problem: &str| {
            let text = LINUX_6_18.replace(from, to);
            assert_ne!(text, LINUX_6_18, "{from} is there");
            assert_eq!(BioQueue::parse(&text).expect_err("refused"), problem);
        };
        check(" dev;", " device;", "it has no field `dev`");
        check("offset:16;", "offset:18;", "its field `sector` has 8 bytes at 18");
        check("offset:24;	size:4;", "offset:24;	size:2;", "its field `nr_sector` has 2 bytes at 24");
        check("offset:24;	size:4;", "offset:65532;	size:4;", "its field `nr_sector` has 4 bytes at 65532");
        check("offset:24;	size:4;", "offset:99999;	size:4;", "it has no field `nr_sector`");
        check("offset:8;", "offset:4;", "its field `dev` has 4 bytes at 4");
        check("size:10;", "size:0;", "its field `rwbs` has 0 bytes at 28");
        check("field:char rwbs[10];", "field:__data_loc char[] rwbs;", "it has no field `rwbs`");
        assert!(BioQueue::parse("").is_err());
        assert!(BioQueue::parse("field:;;;\nfield: ;offset:;size:-1\nfield:dev_t dev").is_err());
    }
}
