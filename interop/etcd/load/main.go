// Load on an etcd cluster, in the words of `ironkeeper bench`: endpoints, work (write, read, mixed), connections,
// requests in flight on each, seconds. Prints `begin`, and `end` with operations and seconds. With the work `wait` it ends
// when a write is acknowledged; with `leader` it prints which of the endpoints is the leader's, counted from zero.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	keys  = 1000
	bytes = 100
	// Load before measuring starts.
	warmUp = time.Second
)

func main() {
	endpoints := strings.Split(os.Args[1], ",")
	work := os.Args[2]
	switch work {
	case "wait":
		wait(endpoints)
		return
	case "leader":
		leader(endpoints)
		return
	}
	connections, inFlight := number(os.Args[3]), number(os.Args[4])
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	check(err)
	readPercent := map[string]int{"write": 0, "read": 100, "mixed": 90}[work]

	value := strings.Repeat("x", bytes)
	first := connect(endpoints)
	for key := 0; key < keys; key++ {
		_, err := first.Put(context.Background(), name(key), value)
		check(err)
	}
	var done atomic.Int64
	var stop atomic.Bool
	var workers sync.WaitGroup
	for connection := 0; connection < connections; connection++ {
		// Dealt out to the members, as connections of the others are.
		client := connect(endpoints[connection%len(endpoints) : connection%len(endpoints)+1])
		for worker := 0; worker < inFlight; worker++ {
			workers.Add(1)
			go func() {
				defer workers.Done()
				for !stop.Load() {
					key := name(rand.Intn(keys))
					var err error
					if rand.Intn(100) < readPercent {
						// Of whatever the member has, as ZooKeeper's reads are.
						_, err = client.Get(context.Background(), key, clientv3.WithSerializable())
					} else {
						_, err = client.Put(context.Background(), key, value)
					}
					check(err)
					done.Add(1)
				}
			}()
		}
	}
	time.Sleep(warmUp)
	before, began := done.Load(), time.Now()
	fmt.Println("begin")
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	operations := float64(done.Load() - before)
	fmt.Printf("end %.0f %.3f\n", operations, time.Since(began).Seconds())
	stop.Store(true)
	workers.Wait()
}

func wait(endpoints []string) {
	client := connect(endpoints)
	for {
		context, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		_, err := client.Put(context, "again", "x")
		cancel()
		if err == nil {
			return
		}
	}
}

func leader(endpoints []string) {
	client := connect(endpoints)
	for at, endpoint := range endpoints {
		status, err := client.Status(context.Background(), endpoint)
		check(err)
		if status.Leader == status.Header.MemberId {
			fmt.Println(at)
			return
		}
	}
	check(fmt.Errorf("nobody leads"))
}

func connect(endpoints []string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 30 * time.Second})
	check(err)
	return client
}

func name(key int) string {
	return fmt.Sprintf("/bench/%08d", key)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
