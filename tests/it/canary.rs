//! An adapter that gives wrong answers is refused, or used without what is wrong.
#![cfg(feature = "wgpu")]

use gradloom::canary::examine;
use gradloom::wgpu::WgpuDevice;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::Source;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use gradloom_tests::here;
use gradloom_tests::targets::changed;

/// A device of which one word of every readback is wrong.
struct Liar {
    device: WgpuDevice,
    target: Target,
    word: usize,
}

impl Device for Liar {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        self.device.alloc(bytes)
    }

    fn free(&mut self, buf: BufId) {
        self.device.free(buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.device.upload(buf, offset, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.device.compile(sources)
    }

    fn release(&mut self, kernel: KernelId) {
        self.device.release(kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.device.submit(steps)
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.device.read(view)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        Ok(self.device.poll(ticket)?.map(|mut bytes| {
            bytes[4 * self.word] ^= 0x10;
            bytes
        }))
    }

    fn sync(&mut self) -> Result<()> {
        self.device.sync()
    }
}

#[test]
fn an_adapter_that_lies_is_refused_or_used_without() {
    let Some(mut device) = here::device("wgpu", WgpuDevice::new()) else { return };
    let (target, notes) = examine(&mut device).expect("this driver divides");
    assert_eq!(&target, device.target(), "an open device is examined already");
    assert_eq!(notes, device.notes());
    eprintln!("{}: {notes:?}", device.description());
    // the shader asks for a quotient first, and for the long loop last
    let unlimited = changed(target, |t| t.limits.max_loop_iterations = u32::MAX);
    let mut liar = Liar { device, target: unlimited.clone(), word: 0 };
    let Err(Error::Device { what, .. }) = examine(&mut liar) else { panic!("it cannot divide") };
    assert!(what.contains("a quotient of signed integers is 0x"), "{what}");
    liar.word = 24;
    let (target, notes) = examine(&mut liar).expect("it can do without long loops");
    assert_eq!(target, unlimited.with_loop_limit());
    assert!(notes.iter().any(|n| n.contains("65,600 turns")), "{notes:?}");
}
