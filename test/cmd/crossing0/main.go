package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/plimsoll-project/plimsoll/test/race/crossing"
)

func main() {
	var c crossing.Config
	flag.Int64Var(&c.Rate, "rate", 20, "")
	flag.Int64Var(&c.Distance, "distance", 80, "")
	flag.Int64Var(&c.Memory, "memory", 1024, "")
	flag.Int64Var(&c.Headroom, "headroom", 100, "")
	flag.IntVar(&c.Pods, "pods", 10, "")
	flag.IntVar(&c.Crossings, "n", 3, "")
	flag.Parse()
	c.Hog, c.Log = "/work/wt/fence/_output/bin/hog", os.Stdout
	_, err := crossing.Measure(context.Background(), c)
	fmt.Println(err)
}
