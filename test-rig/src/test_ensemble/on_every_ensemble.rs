//! Registers a behaviour as a test on each ensemble.

/// Tests behaviours in memory, on a paused clock, and on a real server of each store, which the tests
/// of a program share.
///
/// A behaviour is an `async fn` of this file that takes a [`TestEnsemble`](crate::TestEnsemble) that no
/// other test sees. The macro registers it: the tests are `behaviour::in_memory`,
/// `behaviour::on_a_real_server`, `behaviour::on_etcd`, `behaviour::on_redis`, `behaviour::on_postgres` and
/// `behaviour::on_mariadb`. Behaviours of ZooKeeper alone come after `zookeeper:`, those that etcd cannot show after
/// `but_etcd:`: it has no directories that count their nodes, and no transaction of more than some hundred operations. One that is not
/// registered is dead code, of which the compiler warns.
///
/// ```ignore
/// on_every_ensemble!(holder_excludes_others, waiter_is_next);
///
/// async fn holder_excludes_others(ensemble: TestEnsemble) {
///     let session = ensemble.session().await;
///     // ...
/// }
/// ```
///
/// A behaviour that stops the ensemble, or counts what all of its sessions do, needs
/// [`on_ensembles_of_their_own!`](crate::on_ensembles_of_their_own).
#[macro_export]
macro_rules! on_every_ensemble {
    (zookeeper: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] shared [on_a_real_server]);
    };
    (but_etcd: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] shared [on_a_real_server on_redis on_postgres on_mariadb]
        );
    };
    (@each [$($behaviour:ident)+] $place:ident $servers:tt) => {
        $($crate::on_every_ensemble!(@one $behaviour $place $servers);)+
    };
    (@one $behaviour:ident $place:ident $servers:tt) => {
        mod $behaviour {
            use super::$behaviour;

            $crate::on_every_ensemble!(@tests $behaviour $place $servers);
        }
    };
    (@tests $behaviour:ident $place:ident [$($server:ident)+]) => {
        #[tokio::test(start_paused = true)]
        async fn in_memory() {
            $behaviour($crate::TestEnsemble::in_memory()).await;
        }

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $server() {
                $behaviour($crate::$place::$server().await).await;
            }
        )+
    };
    ($($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] shared [on_a_real_server on_etcd on_redis on_postgres on_mariadb]
        );
    };
}

/// As [`on_every_ensemble!`](crate::on_every_ensemble), each test on a server of its own: for behaviours
/// that halt, kill, cut, configure or count.
///
/// Those that count watches on the server come after `watches:`: sessions on MariaDB only look.
#[macro_export]
macro_rules! on_ensembles_of_their_own {
    (zookeeper: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] own [on_a_real_server]);
    };
    (watches: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] own [on_a_real_server on_etcd on_redis on_postgres]
        );
    };
    ($($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] own [on_a_real_server on_etcd on_redis on_postgres on_mariadb]
        );
    };
}

/// Tests a lock by the [contract](recipes_testing::contract) of all locks, on every ensemble.
/// `not_reentrant` is for one that no owner enters twice.
#[macro_export]
macro_rules! contract_on_every_ensemble {
    ($lock:expr) => {
        $crate::lock_contract!(
            @reentrant [$crate::contract_on_every_ensemble] [@behaviour] $lock
        );
        $crate::contract_on_every_ensemble!(@chroot $lock);
    };
    (not_reentrant, $lock:expr) => {
        $crate::lock_contract!(
            @not_reentrant [$crate::contract_on_every_ensemble] [@behaviour] $lock
        );
        $crate::contract_on_every_ensemble!(@chroot $lock);
    };
    (@behaviour holder_and_waiter_survive_a_restart $lock:expr) => {
        $crate::contract_on_every_ensemble!(@on own holder_and_waiter_survive_a_restart $lock);
    };
    (@behaviour $name:ident $lock:expr) => {
        $crate::contract_on_every_ensemble!(@on shared $name $lock);
    };
    (@on $place:ident $name:ident $lock:expr) => {
        mod $name {
            use super::*;

            async fn behaviour(ensemble: $crate::TestEnsemble) {
                $crate::contract::$name(ensemble, $lock).await;
            }

            $crate::on_every_ensemble!(@tests behaviour $place
                [on_a_real_server on_etcd on_redis on_postgres on_mariadb]);
        }
    };
    (@chroot $lock:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn lock_works_below_a_chroot_on_a_real_server() {
            let ensemble = $crate::shared::on_a_real_server().await;
            ensemble.create("/chroot", b"").await;
            let options = $crate::SessionOptions::new();
            let inside = ensemble.session_below("/chroot", options).await;
            let inside = (inside, "/chroot");
            $crate::contract::lock_works_below_a_chroot(ensemble, inside, $lock).await;
        }
    };
}
