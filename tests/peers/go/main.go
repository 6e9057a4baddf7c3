// The lock of go-zookeeper, driven by one command a line on stdin. The protocol is in ../README.md.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"go-peer/wire"
)

const connectMax = 50 * time.Second

type peer struct {
	mutex   sync.Mutex
	clients map[string]*zk.Conn
	locks   map[string]*namedLock
}

// namedLock is a lock and its directory.
type namedLock struct {
	*zk.Lock
	path string
}

func main() {
	wire.Serve(&peer{clients: map[string]*zk.Conn{}, locks: map[string]*namedLock{}})
}

// Perform carries out a command.
func (p *peer) Perform(verb string, words *wire.Words) (values []string, err error) {
	switch verb {
	case "version":
		return wire.Version("github.com/go-zookeeper/zk")
	case "open":
		return p.open(words.Next(), words.Next(), words.Number())
	case "session":
		client, err := p.client(words.Next())
		if err != nil {
			return nil, err
		}
		return []string{session(client)}, nil
	case "close":
		client, err := p.client(words.Next())
		if err != nil {
			return nil, err
		}
		client.Close()
		return nil, nil
	case "lock":
		return nil, p.define(words.Next(), words.Next(), words.Next())
	case "acquire", "release", "lockpath":
		return p.own(verb, words.Next())
	case "contend":
		client, err := p.client(words.Next())
		if err != nil {
			return nil, err
		}
		return newContention(client, words.Next(), words.Next()).run(words.Number(), words.Number())
	default:
		return nil, fmt.Errorf("unknown verb: %s", verb)
	}
}

func (p *peer) open(name, connect string, sessionMs int) ([]string, error) {
	timeout := time.Duration(sessionMs) * time.Millisecond
	client, events, err := zk.Connect(strings.Split(connect, ","), timeout, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	late := time.After(connectMax)
	for client.State() != zk.StateHasSession { // ends with the session or at the deadline
		select {
		case <-events:
		case <-late:
			client.Close()
			return nil, fmt.Errorf("no connection within %v", connectMax)
		}
	}
	go func() {
		for range events { // a client whose events are not read logs about them
		}
	}()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.clients[name] = client
	return []string{session(client)}, nil
}

func session(client *zk.Conn) string {
	return strconv.FormatUint(uint64(client.SessionID()), 16)
}

func (p *peer) define(name, client, path string) error {
	conn, err := p.client(client)
	if err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.locks[name] = &namedLock{zk.NewLock(conn, path, zk.WorldACL(zk.PermAll)), path}
	return nil
}

func (p *peer) own(verb, name string) ([]string, error) {
	p.mutex.Lock()
	lock, known := p.locks[name]
	p.mutex.Unlock()
	if !known {
		return nil, fmt.Errorf("unknown lock: %s", name)
	}
	switch verb {
	case "acquire": // without a timeout: this lock has none
		return []string{"true"}, lock.Lock.Lock()
	case "release":
		return nil, lock.Unlock()
	default:
		if node := lockPath(lock.Lock); node != "" {
			return []string{node}, nil
		}
		return nil, nil
	}
}

func (p *peer) client(name string) (*zk.Conn, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if client, known := p.clients[name]; known {
		return client, nil
	}
	return nil, fmt.Errorf("unknown client: %s", name)
}

// CloseAll ends the sessions, so that none outlives its peer.
func (p *peer) CloseAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, client := range p.clients {
		client.Close()
	}
}
