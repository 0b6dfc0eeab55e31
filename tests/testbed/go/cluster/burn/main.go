// Burn is the load of the tests' pods.
//
//	burn spin N           keep N processors busy
//	burn fill MIB [MIB_S] take memory, all at once or so much a second, and hold it
//	burn serve HZ WORK_US answer so many requests a second, each so much processor time; a line of JSON each second:
//	                      how many, and the latency's median and 99th percentile in microseconds
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// work does a fixed number of rounds.
func work(rounds int) (sum uint64) {
	for i := 0; i < rounds; i++ {
		sum = sum*6364136223846793005 + 1442695040888963407
	}
	return sum
}

func spin(processors int) {
	runtime.GOMAXPROCS(processors + 1)
	for i := 0; i < processors; i++ {
		go func() {
			for {
				work(1 << 20)
			}
		}()
	}
	select {}
}

func fill(mib, perSecond int) {
	held := make([][]byte, 0, mib)
	for len(held) < mib {
		page := make([]byte, 1<<20)
		for at := 0; at < len(page); at += 4096 {
			page[at] = 1
		}
		held = append(held, page)
		if perSecond > 0 {
			time.Sleep(time.Second / time.Duration(perSecond))
		}
	}
	fmt.Println("filled")
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(held)
	}
}

// used is the processor time that this thread has had.
func used() time.Duration {
	const threadCPUTime = 3
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&at)), 0)
	return time.Duration(at.Nano())
}

// serve measures from when a request was due, so that one that waited for another counts its wait. A request's work is
// processor time: rounds take as long as the machine is fast at the moment, which in a virtual one changes by half.
func serve(hz, workMicros int) {
	runtime.LockOSThread()
	want := time.Duration(workMicros) * time.Microsecond
	every := time.Second / time.Duration(hz)
	due := time.Now()
	for {
		taken := make([]int64, 0, hz)
		for said := time.Now(); time.Since(said) < time.Second; {
			due = due.Add(every)
			time.Sleep(time.Until(due))
			for until := used() + want; used() < until; {
				work(1 << 14)
			}
			taken = append(taken, time.Since(due).Microseconds())
		}
		sort.Slice(taken, func(a, b int) bool { return taken[a] < taken[b] })
		count := len(taken)
		fmt.Printf("{\"requests\": %d, \"p50_us\": %d, \"p99_us\": %d}\n", count, taken[count/2], taken[count*99/100])
	}
}

func number(at, otherwise int) int {
	if len(os.Args) <= at {
		return otherwise
	}
	told, err := strconv.Atoi(os.Args[at])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return told
}

func main() {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "spin":
		spin(number(2, 1))
	case len(os.Args) > 2 && os.Args[1] == "fill":
		fill(number(2, 1), number(3, 0))
	case len(os.Args) > 3 && os.Args[1] == "serve":
		serve(number(2, 100), number(3, 1000))
	default:
		fmt.Fprintln(os.Stderr, "burn spin N | fill MIB [MIB_S] | serve HZ WORK_US")
		os.Exit(2)
	}
}
