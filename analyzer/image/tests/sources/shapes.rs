//! Every kind of name that rustc makes: generics, trait methods, closures, threads.
use std::thread; use std::fmt::Debug;
mod inner { pub struct S<T>(pub T); impl<T: std::fmt::Debug> S<T> { #[inline(never)] pub fn go(&self) { super::leaf(1); println!("{:?}", self.0); } }
 pub trait Tr { fn tr(&self); } impl<T: std::fmt::Debug> Tr for S<T> { #[inline(never)] fn tr(&self) { self.go() } } }
use inner::Tr;
extern "C" { fn puts(s: *const u8) -> i32; }
#[inline(never)] fn leaf(n: i32) -> i32 { unsafe { puts(b"leaf\0".as_ptr()) + n } }
fn gen<F: Fn(i32) -> i32, T: Debug>(f: F, _t: T) -> i32 { f(2) }
fn main() { let s = inner::S(vec![1u8]); s.tr(); gen(|x| leaf(x), "a"); let b: Box<dyn Fn() + Send> = Box::new(|| { leaf(3); });
 thread::Builder::new().name("w".into()).spawn(move || { b(); gen(|x| leaf(x) + 1, 3u8); }).unwrap().join().unwrap(); }
