// The locks and elections of etcd's own package concurrency, driven by one command a line on stdin. The protocol is in
// ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"go-peer/wire"
)

// As etcdctl has it.
const (
	dialMax       = 15 * time.Second
	keepAliveTime = 2 * time.Second
	keepAliveMax  = 6 * time.Second
)

type peer struct {
	mutex     sync.Mutex
	clients   map[string]*client
	locks     map[string]*concurrency.Mutex
	elections map[string]*concurrency.Election
}

// client is a client and its session, or more sessions with the same lifetime.
type client struct {
	*etcd.Client
	seconds int
	session *concurrency.Session
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		runBench()
		return
	}
	wire.Serve(&peer{
		clients:   map[string]*client{},
		locks:     map[string]*concurrency.Mutex{},
		elections: map[string]*concurrency.Election{},
	})
}

// Perform carries out a command.
func (p *peer) Perform(verb string, words *wire.Words) ([]string, error) {
	switch verb {
	case "version":
		return wire.Version("go.etcd.io/etcd/client/v3")
	case "open":
		return p.open(words.Next(), words.Next(), words.Number())
	case "session", "lost", "close", "lock", "candidate", "contend":
		return p.ofClient(verb, words)
	case "acquire", "try", "release", "lockpath", "revision":
		lock, err := known(p, p.locks, words.Next())
		if err != nil {
			return nil, err
		}
		return ofLock(verb, lock, words)
	default:
		election, err := known(p, p.elections, words.Next())
		if err != nil {
			return nil, err
		}
		return ofElection(verb, election, words)
	}
}

func known[T any](p *peer, all map[string]T, name string) (T, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	one, found := all[name]
	if !found {
		return one, fmt.Errorf("unknown: %s", name)
	}
	return one, nil
}

func (p *peer) open(name, endpoints string, sessionMs int) ([]string, error) {
	connection, err := etcd.New(etcd.Config{
		Endpoints:            strings.Split(endpoints, ","),
		DialTimeout:          dialMax,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveMax,
	})
	if err != nil {
		return nil, err
	}
	opened := &client{Client: connection, seconds: (sessionMs + 999) / 1000}
	if opened.session, err = opened.newSession(); err != nil {
		connection.Close()
		return nil, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.clients[name] = opened
	return []string{leaseOf(opened)}, nil
}

func (c *client) newSession() (*concurrency.Session, error) {
	return concurrency.NewSession(c.Client, concurrency.WithTTL(c.seconds))
}

func (c *client) close() error {
	failure := c.session.Close()
	if err := c.Client.Close(); failure == nil {
		failure = err
	}
	return failure
}

func leaseOf(c *client) string {
	return strconv.FormatUint(uint64(c.session.Lease()), 16)
}

func (p *peer) ofClient(verb string, words *wire.Words) ([]string, error) {
	var name string
	if verb == "lock" || verb == "candidate" {
		name = words.Next()
	}
	owner, err := known(p, p.clients, words.Next())
	if err != nil {
		return nil, err
	}
	switch verb {
	case "session":
		return []string{leaseOf(owner)}, nil
	case "lost":
		ctx, cancel := within(words)
		defer cancel()
		select {
		case <-owner.session.Done():
			return yes(true), nil
		case <-ctx.Done():
			return yes(false), nil
		}
	case "close":
		return nil, owner.close()
	case "contend":
		return newContention(owner, words).run(words)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if verb == "lock" {
		p.locks[name] = concurrency.NewMutex(owner.session, words.Next())
	} else {
		p.elections[name] = concurrency.NewElection(owner.session, words.Next())
	}
	return nil, nil
}

func ofLock(verb string, lock *concurrency.Mutex, words *wire.Words) ([]string, error) {
	switch verb {
	case "acquire":
		ctx, cancel := within(words)
		defer cancel()
		return unless(ctx, lock.Lock(ctx), context.DeadlineExceeded)
	case "try":
		ctx := context.Background()
		return unless(ctx, lock.TryLock(ctx), concurrency.ErrLocked)
	case "release":
		return nil, lock.Unlock(context.Background())
	case "lockpath":
		if revision(lock) < 0 {
			return nil, nil
		}
		return []string{lock.Key()}, nil
	default:
		return []string{strconv.FormatInt(revision(lock), 10)}, nil
	}
}

// revision is the one that made the lock's key, or negative. The lock does not show it otherwise.
func revision(lock *concurrency.Mutex) int64 {
	return lock.IsOwner().TargetUnion.(*pb.Compare_CreateRevision).CreateRevision
}

func ofElection(verb string, election *concurrency.Election, words *wire.Words) ([]string, error) {
	ctx := context.Background()
	switch verb {
	case "campaign":
		value := words.Next()
		ctx, cancel := within(words)
		defer cancel()
		return unless(ctx, election.Campaign(ctx, value), context.DeadlineExceeded)
	case "proclaim":
		return nil, election.Proclaim(ctx, words.Next())
	case "resign":
		return nil, election.Resign(ctx)
	case "term":
		return []string{election.Key(), strconv.FormatInt(election.Rev(), 10)}, nil
	case "leader":
		leader, err := election.Leader(ctx)
		if errors.Is(err, concurrency.ErrElectionNoLeader) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []string{string(leader.Kvs[0].Value)}, nil
	case "observe":
		count := words.Number()
		ctx, cancel := within(words)
		defer cancel()
		var seen []string
		leaders := election.Observe(ctx)
		for leader := range leaders { // ends at the deadline, or with enough of them
			seen = append(seen, string(leader.Kvs[0].Value))
			if len(seen) == count {
				break
			}
		}
		return seen, nil
	default:
		return nil, fmt.Errorf("unknown verb: %s", verb)
	}
}

// within is the next word in milliseconds, or for ever.
func within(words *wire.Words) (context.Context, context.CancelFunc) {
	if words.IsEmpty() {
		return context.WithCancel(context.Background())
	}
	wait := time.Duration(words.Number()) * time.Millisecond
	return context.WithTimeout(context.Background(), wait)
}

// unless returns whether something was granted. The given error says that it was not. A deadline may show as an error
// of the connection.
func unless(ctx context.Context, err, refusal error) ([]string, error) {
	switch {
	case err == nil:
		return yes(true), nil
	case errors.Is(err, refusal) || ctx.Err() != nil:
		return yes(false), nil
	default:
		return nil, err
	}
}

func yes(it bool) []string {
	return []string{strconv.FormatBool(it)}
}

// CloseAll ends the sessions, so that none outlives its peer.
func (p *peer) CloseAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, client := range p.clients {
		client.close()
	}
}
