// Command nonewprivs prints its effective user. Its image gives it the setuid
// bit; a container that may not gain privileges runs it as its own user.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
