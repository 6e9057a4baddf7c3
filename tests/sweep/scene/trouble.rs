//! The fault of a run, and what went through the proxy.

use super::*;

/// Injects the fault of the case when its frame comes. Never completes.
pub(super) async fn harm(
    proxy: &FaultProxy,
    case: &Case,
    elsewhere: &str,
    has_struck: &AtomicBool,
) {
    if let Some(First::At(point, fault)) = &case.first {
        point.on(proxy).then(*fault);
    }
    match &case.harm {
        Some((point, Harm::Fault(fault))) => {
            point.on(proxy).then(*fault).struck().await;
            has_struck.store(true, Ordering::Relaxed);
        }
        Some((point, Harm::Partition)) => {
            let gate = point.on(proxy).hold();
            gate.reached().await;
            has_struck.store(true, Ordering::Relaxed);
            proxy.black_hole(Direction::ToServer);
            proxy.black_hole(Direction::FromServer);
            gate.release();
            sleep(2 * case.lifetime.session_timeout()).await;
            proxy.restore();
        }
        Some((point, Harm::Move)) => {
            let gate = point.on(proxy).hold();
            gate.reached().await;
            has_struck.store(true, Ordering::Relaxed);
            proxy.retarget(elsewhere);
            proxy.cut_all(Cut::Reset);
            // It is not released, but ends with its connection.
            pending().await
        }
        None => {}
    }
    pending().await
}

pub(crate) fn transcript(log: &[Frame]) -> String {
    let start = log.first().map(|it| it.arrived);
    let line = |it: &Frame| {
        let at = start.map(|start| (it.arrived - start).as_millis());
        format!(
            "{:>6} ms #{} {:?} {} xid {:?} error {:?} {:?} {:?}\n",
            at.unwrap_or_default(),
            it.connection,
            it.direction,
            it.names.join("+"),
            it.xid,
            it.error,
            it.fate,
            it.paths
        )
    };
    log.iter().map(line).collect()
}
