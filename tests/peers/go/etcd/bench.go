package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"go-peer/wire"
)

// So keep-alives are so rare that hardly any is counted.
const benchTTL = 600

// bench is this side of the benchmarks: a measurement a line on stdin. The protocol is in ../../README.md.
type bench struct {
	clients []*client
	held    contender
	queue   *queue
}

// contender takes what it contends for, and gives it back.
type contender interface {
	take() error
	giveBack() error
}

func runBench() {
	b := &bench{}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		fmt.Println(b.answer(strings.Split(orders.Text(), " ")))
	}
	for _, client := range b.clients {
		client.close()
	}
}

func (b *bench) answer(words []string) string {
	if words[0] == "version" {
		version, err := wire.Version("go.etcd.io/etcd/client/v3")
		if err != nil {
			return "error " + err.Error()
		}
		return "ok " + version[0]
	}
	figures, err := b.measure(words)
	if err != nil {
		return "error " + strings.Join(strings.Fields(err.Error()), " ")
	}
	var line strings.Builder
	line.WriteString("ok")
	for _, figure := range figures {
		line.WriteString(" " + strconv.FormatInt(figure, 10))
	}
	return line.String()
}

func (b *bench) measure(words []string) ([]int64, error) {
	if len(words) < 5 {
		return nil, errors.New("WORK URL LOCK MILLIS KIND ARGUMENT...")
	}
	work, place := words[0], &place{bench: b, lock: "/" + words[2], kind: words[4]}
	place.endpoints = strings.Split(strings.TrimPrefix(words[1], "etcd://"), ",")
	var numbers []int
	for _, word := range append([]string{words[3]}, words[5:]...) {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	length := time.Duration(numbers[0]) * time.Millisecond
	switch rest := numbers[1:]; {
	case work == "roundtrip":
		one, err := place.at(0)
		if err != nil {
			return nil, err
		}
		return each(one.take, length)
	case work == "uncontended":
		one, err := place.at(0)
		if err != nil {
			return nil, err
		}
		return cycles(one, length)
	case work == "hold":
		one, err := place.at(1)
		if err != nil {
			return nil, err
		}
		b.held = one
		return nil, one.take()
	case work == "try":
		one, err := place.at(0)
		if err != nil {
			return nil, err
		}
		return each(one.(*mutex).isRefused, length)
	case work == "free":
		return nil, b.held.giveBack()
	case work == "drain":
		return b.queue.drain()
	case len(rest) == 1 && work == "saturated", len(rest) == 3 && work == "paced":
		contenders, err := place.each(rest[0])
		if err != nil {
			return nil, err
		}
		var hold, pause time.Duration
		if len(rest) == 3 {
			hold, pause = time.Duration(rest[1])*time.Millisecond, time.Duration(rest[2])*time.Millisecond
		}
		return contest(contenders, hold, pause, length)
	case len(rest) == 1 && work == "parallel":
		var contenders []contender
		for lock := 0; lock < rest[0]; lock++ {
			apart := *place
			apart.lock = fmt.Sprintf("%s/%d", place.lock, lock)
			one, err := apart.at(0)
			if err != nil {
				return nil, err
			}
			contenders = append(contenders, one)
		}
		return together(contenders, length)
	case len(rest) == 2 && work == "queue":
		queue, err := place.wait(rest[0], rest[1])
		b.queue = queue
		return nil, err
	default:
		return nil, fmt.Errorf("unknown work: %v", words)
	}
}

// client is that of a session; it stays for all measurements.
func (b *bench) client(endpoints []string, session int) (*client, error) {
	for len(b.clients) <= session {
		connection, err := etcd.New(etcd.Config{Endpoints: endpoints, DialTimeout: dialMax})
		if err != nil {
			return nil, err
		}
		opened := &client{Client: connection, seconds: benchTTL}
		if opened.session, err = opened.newSession(); err != nil {
			return nil, err
		}
		b.clients = append(b.clients, opened)
	}
	return b.clients[session], nil
}

// place is a lock of a kind on a server.
type place struct {
	bench     *bench
	endpoints []string
	lock      string
	kind      string
}

// at is the lock as a client sees it, with the client's own session.
func (p *place) at(session int) (contender, error) {
	client, err := p.bench.client(p.endpoints, session)
	if err != nil {
		return nil, err
	}
	return p.of(client.session), nil
}

func (p *place) of(session *concurrency.Session) contender {
	switch p.kind {
	case "Election":
		return &election{concurrency.NewElection(session, p.lock)}
	case "put":
		key := fmt.Sprintf("%s/%x", p.lock, session.Lease())
		return &raw{session, key}
	default:
		return &mutex{concurrency.NewMutex(session, p.lock)}
	}
}

func (p *place) each(sessions int) ([]contender, error) {
	var contenders []contender
	for session := 0; session < sessions; session++ {
		one, err := p.at(session)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, one)
	}
	return contenders, nil
}

type mutex struct{ *concurrency.Mutex }

func (m *mutex) take() error     { return m.Lock(context.Background()) }
func (m *mutex) giveBack() error { return m.Unlock(context.Background()) }

func (m *mutex) isRefused() error {
	switch err := m.TryLock(context.Background()); err {
	case concurrency.ErrLocked:
		return nil
	case nil:
		return errors.New("granted what another session holds")
	default:
		return err
	}
}

type election struct{ *concurrency.Election }

func (e *election) take() error     { return e.Campaign(context.Background(), "") }
func (e *election) giveBack() error { return e.Resign(context.Background()) }

// raw is the least that a lock can be: a key of a lease. It excludes nobody.
type raw struct {
	session *concurrency.Session
	key     string
}

func (r *raw) take() error {
	_, err := r.session.Client().Put(context.Background(), r.key, "", etcd.WithLease(r.session.Lease()))
	return err
}

func (r *raw) giveBack() error {
	_, err := r.session.Client().Delete(context.Background(), r.key)
	return err
}

// queue is waiters, each with a session of its own, and the lock that they wait for.
type queue struct {
	holder   contender
	count    int
	sessions []*concurrency.Session
	served   sync.WaitGroup
	mutex    sync.Mutex
	failure  error
}

// wait lets so many waiters of these clients queue up behind a holder.
func (p *place) wait(clients, count int) (*queue, error) {
	holder, err := p.at(0)
	if err != nil {
		return nil, err
	}
	if err := holder.take(); err != nil {
		return nil, err
	}
	q := &queue{holder: holder, count: count}
	for waiter := 0; waiter < count; waiter++ {
		client, err := p.bench.client(p.endpoints, waiter%clients)
		if err != nil {
			return nil, err
		}
		session, err := client.newSession()
		if err != nil {
			return nil, err
		}
		q.sessions = append(q.sessions, session)
		q.served.Add(1)
		go func(one contender) {
			defer q.served.Done()
			err := one.take()
			if err == nil {
				err = one.giveBack()
			}
			if err != nil {
				q.mutex.Lock()
				q.failure = err
				q.mutex.Unlock()
			}
		}(p.of(session))
	}
	ctx, asked := context.Background(), p.bench.clients[0]
	for { // ends when all have their keys
		keys, err := asked.Get(ctx, p.lock+"/", etcd.WithPrefix(), etcd.WithCountOnly())
		if err != nil {
			return nil, err
		}
		if keys.Count == int64(count)+1 {
			return q, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (q *queue) drain() ([]int64, error) {
	begun := time.Now()
	if err := q.holder.giveBack(); err != nil {
		return nil, err
	}
	q.served.Wait()
	took := time.Since(begun).Nanoseconds()
	for _, session := range q.sessions {
		session.Close()
	}
	return []int64{int64(q.count), took, int64(q.count)}, q.failure
}
