//! What tests of files share: folders of their own, and a model written by hand.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A folder that goes with the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pipe that nobody writes to: who opens it to read waits, unless told not to.
pub(crate) fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What `f` returns; fails if it hangs.
pub(crate) fn in_time<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(f()));
    receive.recv_timeout(Duration::from_secs(120)).expect("an answer, rather than a hang")
}

/// A field of a protobuf message that has bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 1 << 14);
    [&[number << 3 | 2, bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8], bytes].concat()
}

fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

/// A model file: `y = op(x, w)` of two f32, with `w` in another file.
pub(crate) fn model_with_data(op: &str, location: &str) -> Vec<u8> {
    let dim = field(1, &number(1, 2));
    let port = |name: &str| {
        let tensor = [number(1, 1), field(2, &dim)].concat();
        [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
    };
    let node = [field(1, b"x"), field(1, b"w"), field(2, b"y"), field(4, op.as_bytes())].concat();
    let place = field(13, &[field(1, b"location"), field(2, location.as_bytes())].concat());
    let weight = [number(1, 2), number(2, 1), field(8, b"w"), place, number(14, 1)].concat();
    let graph = [field(1, &node), field(2, b"g"), field(5, &weight), field(11, &port("x")), field(12, &port("y"))];
    [number(1, 8), field(8, &number(2, 17)), field(7, &graph.concat())].concat()
}

/// The bytes of `w`.
pub(crate) fn weight(values: [f32; 2]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
