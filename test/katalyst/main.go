// Command katalyst is an eviction plugin or a reporter plugin of Katalyst, for tests: the unmodified skeleton and
// registration of katalyst-api, with answers that a file sets.
//
//	katalyst -dir DIRECTORY -control FILE -calls FILE [-name NAME] [-reporter]
//
// It serves on DIRECTORY/NAME.sock. The control file has one JSON object (type answers); it is read again for each call
// and ten times a second, so that what a test writes into it counts at once. A test must replace it by a rename. With
// "serve": false the plugin stops, which removes its socket; with true it starts again. Each call is appended to the
// file of calls, one JSON object (type call) a line.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kubewharf/katalyst-api/pkg/plugins/skeleton"
)

func main() {
	name := flag.String("name", "katalyst-skeleton", "name of the plugin")
	dir := flag.String("dir", "", "directory of the socket")
	control := flag.String("control", "", "file with the answers")
	calls := flag.String("calls", "", "file to which calls are appended")
	reporter := flag.Bool("reporter", false, "serve a reporter plugin")
	flag.Parse()
	if *dir == "" || *control == "" || *calls == "" {
		flag.Usage()
		os.Exit(2)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	record := &callFile{name: *calls}
	var served skeleton.GenericPlugin = &plugin{name: *name, control: *control, calls: record}
	if *reporter {
		served = &reporterPlugin{name: *name, control: *control, calls: record}
	}
	if err := run(stop, served, *control, *dir); err != nil {
		log.Fatal(err)
	}
}

// lookInterval is how often the control file is read beside calls.
const lookInterval = 100 * time.Millisecond

// run serves the plugin while its control file says so, until a signal arrives.
func run(stop <-chan os.Signal, p skeleton.GenericPlugin, control, dir string) error {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	var serving *skeleton.PluginRegistrationWrapper
	for {
		a, err := readAnswers(control)
		if err != nil {
			return err
		}
		if a.Serve && serving == nil {
			// A wrapper that was stopped cannot start again.
			if serving, err = skeleton.NewRegistrationPluginWrapper(p, []string{dir}, nil); err != nil {
				return err
			}
			if err := serving.Start(); err != nil {
				return err
			}
		}
		if !a.Serve && serving != nil {
			if err := serving.Stop(); err != nil {
				return err
			}
			serving = nil
		}
		select {
		case <-look.C:
		case <-stop:
			if serving != nil {
				return serving.Stop()
			}
			return nil
		}
	}
}
