// Names what the recipe for Go imports, so that `go mod tidy` keeps it in go.mod.
package sessions

import (
	_ "github.com/testcontainers/testcontainers-go"
	_ "github.com/testcontainers/testcontainers-go/wait"
	_ "go.mongodb.org/mongo-driver/v2/mongo"
)
