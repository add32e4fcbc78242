//! Comma-separated traces. Which layout it is follows from the first line of a request. A first line without a number is the header.
//!
//! | layout | a line | units |
//! |---|---|---|
//! | recorded for hearth | `time_us,R\|W,offset_bytes,length_bytes` | |
//! | Alibaba block traces | `device_id,opcode,offset,length,timestamp` | opcode R or W; bytes; microseconds since 1970 |
//! | Tencent CBS | `Timestamp,Offset,Size,IOType,VolumeID` | seconds since 1970; sectors of 512 bytes; 0 read, 1 write |
//! | MSR Cambridge | `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` | 100 ns (Windows filetime); Read or Write; bytes |
//!
//! The layouts of the public collections are those of the descriptions that come with them.

use super::disks::Disks;
use super::{Invalid, TraceRequest, request, text};
use types::SECTOR_BYTES;

/// What is expected where no layout fits.
const HEARTH: &str = "time_us,R|W,offset_bytes,length_bytes";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Hearth,
    Alibaba,
    Tencent,
    Msr,
}

impl Layout {
    /// The layout of a line, by how many fields there are and which of them are numbers.
    fn of(fields: &[&str]) -> Option<Layout> {
        let are_numbers = |places: &[usize]| places.iter().all(|place| fields[*place].parse::<u64>().is_ok());
        match fields.len() {
            4 if are_numbers(&[0, 2, 3]) => Some(Layout::Hearth),
            5 if are_numbers(&[0, 1, 2, 3, 4]) => Some(Layout::Tencent),
            5 if are_numbers(&[2, 3, 4]) => Some(Layout::Alibaba),
            7 if are_numbers(&[0, 4, 5]) => Some(Layout::Msr),
            _ => None,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Layout::Hearth => HEARTH,
            Layout::Alibaba => "device_id,R|W,offset_bytes,length_bytes,time_us",
            Layout::Tencent => "time_s,first_sector,sectors,0|1,volume",
            Layout::Msr => "filetime,hostname,disk,Read|Write,offset_bytes,length_bytes,response_time",
        }
    }

    fn parse<'a>(self, line: &'a str, disks: &mut Disks<'a>) -> Result<TraceRequest, &'static str> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |place: usize| fields[place].parse::<u64>().map_err(|_| "not a number");
        let count = match self {
            Layout::Hearth => 4,
            Layout::Alibaba | Layout::Tencent => 5,
            Layout::Msr => 7,
        };
        match fields.len() {
            less if less < count => return Err("too few fields"),
            more if more > count => return Err("too many fields"),
            _ => {}
        }
        match self {
            Layout::Hearth => {
                let time_ns = number(0)?.saturating_mul(1000);
                request(time_ns, 0, number(2)?, number(3)?, 1, is_write(fields[1], "R", "W")?)
            }
            Layout::Alibaba => {
                let (time_ns, disk) = (number(4)?.saturating_mul(1000), disks.number_of(fields[0].as_bytes())?);
                request(time_ns, disk, number(2)?, number(3)?, 1, is_write(fields[1], "R", "W")?)
            }
            Layout::Tencent => {
                let (time_ns, disk) = (number(0)?.saturating_mul(1_000_000_000), disks.number_of(fields[4].as_bytes())?);
                request(time_ns, disk, number(1)?, number(2)?, SECTOR_BYTES, is_write(fields[3], "0", "1")?)
            }
            Layout::Msr => {
                // Host and number of the disk, as they stand in the line.
                let at = fields[1].as_ptr() as usize - line.as_ptr() as usize;
                let end = fields[2].as_ptr() as usize - line.as_ptr() as usize + fields[2].len();
                let (time_ns, disk) = (number(0)?.saturating_mul(100), disks.number_of(&line.as_bytes()[at..end])?);
                request(time_ns, disk, number(4)?, number(5)?, 1, is_write(fields[3], "Read", "Write")?)
            }
        }
    }
}

fn is_write(field: &str, read: &str, write: &str) -> Result<bool, &'static str> {
    match field {
        field if field.eq_ignore_ascii_case(read) => Ok(false),
        field if field.eq_ignore_ascii_case(write) => Ok(true),
        _ => Err("neither a read nor a write"),
    }
}

/// Whether a field is meant as a number, good or not: it begins as one.
fn is_number(field: &str) -> bool {
    field.trim().trim_start_matches(['"', '+', '-']).starts_with(|first: char| first.is_ascii_digit())
}

/// Reads the text.
pub fn parse(bytes: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    let mut lines = text(bytes, HEARTH)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let layout_of = |line: &str| Layout::of(&line.split(',').map(str::trim).collect::<Vec<_>>());
    // A line with a number is a request, or was to be one: it is not passed over.
    lines.next_if(|(_, line)| !line.split(',').any(is_number));
    let Some((index, first)) = lines.peek() else { return Ok(Vec::new()) };
    let layout = layout_of(first).ok_or(Invalid::line(*index, "no known layout", HEARTH))?;
    let mut disks = Disks::default();
    let of_line = |(index, line)| layout.parse(line, &mut disks).map_err(|reason| Invalid::line(index, reason, layout.expected()));
    lines.map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(time_ns: u64, disk: u16, offset_bytes: u64, length_bytes: u64, write: bool) -> TraceRequest {
        TraceRequest { time_ns, disk, offset_bytes, length_bytes, write }
    }

    #[test]
    fn the_layouts_are_told_apart_with_a_header_and_without() {
        let hearth = "3,R,4096,100\n4,W,0,1\n";
        let alibaba = "7,R,126703661056,4096,1577808000000046\n1,W,4096,8192,1577808000000426\n7,W,0,512,1577808000000500\n";
        let tencent = "1538323199,1003027216,16,0,2313\n1538323200,8,1,1,1360\n";
        let msr = "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,1339\n";
        let cases = [
            (hearth, "time_us,op,offset,length\n", vec![made(3000, 0, 4096, 100, false), made(4000, 0, 0, 1, true)]),
            (
                alibaba,
                "device_id,opcode,offset,length,timestamp\n",
                vec![
                    made(1_577_808_000_000_046_000, 0, 126_703_661_056, 4096, false),
                    made(1_577_808_000_000_426_000, 1, 4096, 8192, true),
                    made(1_577_808_000_000_500_000, 0, 0, 512, true),
                ],
            ),
            (
                tencent,
                "Timestamp,Offset,Size,IOType,VolumeID\n",
                vec![
                    made(1_538_323_199_000_000_000, 0, 1_003_027_216 * 512, 16 * 512, false),
                    made(1_538_323_200_000_000_000, 1, 4096, 512, true),
                ],
            ),
            (
                msr,
                "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n",
                vec![
                    made(12_816_637_200_306_162_900, 0, 383_496_192, 32_768, false),
                    made(12_816_637_201_638_215_500, 1, 2_822_144, 4096, true),
                ],
            ),
        ];
        for (text, header, expected) in cases {
            assert_eq!(parse(text.as_bytes()).expect(text), expected);
            assert_eq!(parse(format!("{header}{text}").as_bytes()).expect(header), expected);
        }
        assert_eq!(parse(b"").expect("empty"), []);
    }

    #[test]
    fn nonsense_is_told_with_its_line_and_the_form_of_its_layout() {
        let check = |text: &str, line: usize, reason: &str, expected: &str| {
            let error = parse(text.as_bytes()).expect_err(text);
            assert_eq!((error.record, error.reason, error.expected), (line, reason, expected), "{text}");
        };
        check("head\nnothing\n", 2, "no known layout", HEARTH);
        check("1,R,0,1\n1,X,0,1\n", 2, "neither a read nor a write", HEARTH);
        check("1,R,0,1\n\n1,R,0\n", 3, "too few fields", HEARTH);
        check("a,R,0,1,5\nb,R,0,1,5,6\n", 2, "too many fields", Layout::Alibaba.expected());
        check("1,2,3,2,5\n", 1, "neither a read nor a write", Layout::Tencent.expected());
        check("1,h,0,Read,x,4096,5\n1,h,0,Read,x,4096,5\n", 1, "no known layout", HEARTH);
        // None of these is a header, and the next line would be a request.
        for first in ["1,R,0", "1.5,R,0,4096", "-1,R,0,4096", "x,R,0,4096", "\"1\",\"R\",\"0\",\"1\""] {
            check(&format!("{first}\n1,R,0,4096\n"), 1, "no known layout", HEARTH);
        }
    }
}
