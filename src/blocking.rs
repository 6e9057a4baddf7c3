//! Sessions for tools and tests that are not async.
//!
//! A [`Session`] has a tokio runtime of its own, on one thread. [`Session::wait`] does a call of this library on it, and
//! blocks the calling thread until the call is done. All else is the API of the other modules: a blocking session
//! dereferences to [`lock_recipes::Session`](crate::Session), so every recipe takes it as it is.
//!
//! ```
//! # use recipes_testing as testing;
//! use std::time::Duration;
//!
//! use lock_recipes::{InterProcessMutex, blocking};
//!
//! fn deploy(session: &blocking::Session) -> Result<(), lock_recipes::Error> {
//!     let lock = InterProcessMutex::new(session, "/locks/deploy")?;
//!     let guard = session.wait(lock.acquire().timeout(Duration::from_secs(5)))?;
//!     for host in ["web1", "web2"] {
//!         // Nothing stops a thread when the lock is lost. So check before each step.
//!         if !guard.is_valid() {
//!             break;
//!         }
//!         println!("{host} under {}", guard.fencing_token());
//!     }
//!     // An error if the lock was lost: the work may have overlapped with that of another holder.
//!     session.wait(guard.release())?;
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), lock_recipes::Error> {
//!     // Or `blocking::connect("redis://cache")?`. In a test, a double without a server:
//!     let store = testing::MemoryEnsemble::new();
//!     let session = blocking::Session::open(async { Ok(store.session()) })?;
//!     deploy(&session)?;
//!     session.close();
//!     Ok(())
//! }
//! ```
//!
//! # What blocks
//! [`connect`], [`Session::open`], [`Session::wait`], [`Session::close`], and the drop of the last handle if no lock,
//! factory or guard is left. On a thread of an async runtime they block that thread, and every task on it. They do not panic there.
//! `tokio::task::spawn_blocking` gives them a thread that may be blocked.
//!
//! Dropping a guard, or the future of a call, blocks nothing. The session's own thread deletes the node, whichever thread
//! drops the guard, and also if it is dropped by a panic.
//!
//! # Lost locks
//! The guard is that of the async API. [`is_valid`](crate::LockGuard::is_valid) and
//! [`state`](crate::LockGuard::state) say what is known now and wait for nothing;
//! [`verify`](crate::LockGuard::verify) asks the store. What must not be done twice *whatever happens* needs a
//! [`fencing_token`](crate::LockGuard::fencing_token), a [`transaction`](crate::LockGuard::transaction) or a
//! [`fence`](crate::LockGuard::fence). [`Acquire::run`](crate::Acquire::run) stops work at an `await` only, so
//! it does not stop work that blocks.
//!
//! # Errors
//! Those of the async API. [`ConnectError::NoRuntime`] says that a session has got no thread.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use recipes_core::{ConnectError, Error};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::unconstrained;

/// How long a call on a thread of a runtime waits for a wake-up at most.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Opens a session on the store that the scheme of an address names, as [`connect`](fn@crate::connect) does.
/// [`Session::open`] takes options.
///
/// # Errors
/// As [`Session::open`], and [`ConfigError`](crate::ConfigError) for an address that no store of this build has.
pub fn connect(address: &str) -> Result<Session, Error> {
    Session::open(crate::connect(address))
}

/// A [`lock_recipes::Session`](crate::Session) with a runtime of its own. [Threads](self) wait for its calls.
///
/// Cheap to clone. All clones are one session, and threads can use it at the same time: each waits for its own call.
///
/// # Guarantees
/// - The thread of the runtime lives as long as a handle of this type, or a lock or a guard of the session. So a guard that
///   outlives the handles holds its lock, and its drop releases it.
/// - The last handle that is dropped closes the session, as [`close`](Self::close) does, if no lock, factory or guard is
///   left. So `main` may end after it. If one is left, the last of them closes the session in the background. If `main`
///   ends first, the nodes stay until the store session times out. So drop the session last, or close it.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    session: recipes_core::Session,
    own: OwnThread,
}

impl Session {
    /// Opens a session, such as `ZooKeeper::builder().connect(..)`, on a runtime of its own. A session that is open
    /// already stays on the runtime that opened it.
    ///
    /// # Errors
    /// Those of the future; [`ConnectError::NoRuntime`] if the system gives no thread.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example() -> Result<(), lock_recipes::Error> {
    /// use lock_recipes::{SessionOptions, blocking};
    ///
    /// let options = SessionOptions::new().application("deploy");
    /// let opened = lock_recipes::connect_with("zk://zk1:2181", options);
    /// let session = blocking::Session::open(opened)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open<F>(connect: F) -> Result<Self, Error>
    where
        F: IntoFuture<Output = Result<recipes_core::Session, Error>>,
    {
        let own = OwnThread::start().map_err(|source| ConnectError::NoRuntime {
            source: Arc::new(source),
        })?;
        let session = own.wait(connect)?;
        // For guards that outlive all handles.
        let (over, alive) = (session.over(), own.alive.clone());
        drop(own.runtime.spawn(async move {
            over.await;
            drop(alive);
        }));
        let shared = Arc::new(Shared { session, own });
        Ok(Self { shared })
    }

    /// Waits for a call of this library, or for any other future, and returns its output.
    ///
    /// The calling thread polls the future, which may borrow and need not be `Send`. The session's own thread does the
    /// I/O, and has the timers. Calls may be nested: a future may wait for another one.
    ///
    /// The runtime is current while the future is polled, and not before. So what needs a runtime when it is *made* goes
    /// into an `async` block: `wait(async { LeaderLatch::start(..) })`, `wait(async { tokio::time::timeout(..).await })`.
    ///
    /// After a [`close`](Self::close), calls fail as those of the async API. None hangs.
    ///
    /// # Panics
    /// - If the future panics. The session can be used afterwards.
    /// - In a task that was spawned on the session's own runtime, where it would wait for itself.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_recipes::{Error, InterProcessMutex, blocking};
    /// # fn example(session: &blocking::Session, lock: &InterProcessMutex) -> Result<(), Error> {
    /// match session.wait(lock.acquire().timeout(Duration::from_secs(5))) {
    ///     Ok(guard) => {
    ///         session.wait(guard.verify())?;
    ///         session.wait(guard.release())?;
    ///     }
    ///     Err(error) if error.is_busy() => println!("{error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<F: IntoFuture>(&self, call: F) -> F::Output {
        self.shared.own.wait(call)
    }

    /// Closes the session, as [`lock_recipes::Session::close`](crate::Session::close): guards that are alive are lost, and
    /// their nodes are deleted. Closing again does nothing.
    ///
    /// It waits for that: in an outage for 2 s, and otherwise at most for the connect timeout (15 s unless it is set)
    /// for the clean-up, and as long again for the store.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn close(&self) {
        self.wait(self.shared.session.close());
    }
}

/// For the recipes, and for what a session says at once, such as its health.
impl Deref for Session {
    type Target = recipes_core::Session;

    fn deref(&self) -> &recipes_core::Session {
        &self.shared.session
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Session")
            .field(&self.shared.session)
            .finish()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Waiting for locks and guards could take for ever, and closing would lose what they hold.
        if self.session.is_only_handle() && !self.own.is_current() {
            // Without entering the runtime, which a destructor of a thread-local value could not.
            block_on(self.session.close(), false);
        }
    }
}

/// The thread of a runtime. It ends when nothing of it is alive. The runtime is dropped there, because dropping it in
/// async code panics.
struct OwnThread {
    runtime: Handle,
    id: ThreadId,
    /// Nothing is sent.
    alive: mpsc::Sender<()>,
}

impl OwnThread {
    fn start() -> io::Result<Self> {
        let (alive, mut dead) = mpsc::channel(1);
        let (give, take) = channel::channel::<Runtime>();
        let own = thread::Builder::new().name("lock-recipes".to_owned());
        let own = own.spawn(move || {
            if let Ok(runtime) = take.recv() {
                runtime.block_on(dead.recv());
            }
        })?;
        // After the thread: if that cannot be started, no runtime is dropped here.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        // The thread waits for it.
        drop(give.send(runtime));
        Ok(Self {
            runtime: handle,
            id: own.thread().id(),
            alive,
        })
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.id
    }

    fn wait<F: IntoFuture>(&self, call: F) -> F::Output {
        assert!(
            !self.is_current(),
            "a task on the runtime of a blocking session cannot wait for it: await the call instead"
        );
        let is_in_runtime = Handle::try_current().is_ok();
        let _entered = self.runtime.enter();
        block_on(call.into_future(), is_in_runtime)
    }
}

/// Polls a future on this thread until it is done. Unlike the executors of `tokio` and `futures`, it may be nested.
fn block_on<F: Future>(future: F, is_in_runtime: bool) -> F::Output {
    // In a task of another runtime, tokio's types make no progress once the task has had its share, until it yields.
    // This one does not yield.
    let mut future = pin!(unconstrained(future));
    let parked = Arc::new(Parked {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // The thread's own token is not enough: a nested call may take that of the outer one.
        while !parked.is_woken.swap(false, Ordering::SeqCst) {
            if is_in_runtime {
                // A future that yields is woken once the task yields that this call blocks: never. So look again.
                thread::park_timeout(LOOK_AGAIN);
                break;
            }
            thread::park();
        }
    }
}

/// A thread that waits, or will.
struct Parked {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
