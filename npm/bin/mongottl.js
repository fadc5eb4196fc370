#!/usr/bin/env node
'use strict'
// The command mongottl, by the bundle that the package for this platform carries.

const { spawn } = require('node:child_process')
const { constants } = require('node:os')
const path = require('node:path')

const carrier = `@mongottl/${process.platform}-${process.arch}`

function bundle() {
  try {
    return path.dirname(require.resolve(`${carrier}/package.json`))
  } catch {
    console.error(`mongottl: the package ${carrier} is not installed. It is an optional dependency of mongottl, which`)
    console.error('npm leaves out with --omit=optional, and where there is none for the platform: there are')
    console.error(`${Object.keys(require('../package.json').optionalDependencies).join(' and ')}.`)
    process.exit(1)
  }
}

const child = spawn(path.join(bundle(), 'bin', 'mongottl'), process.argv.slice(2), { stdio: 'inherit' })

child.on('error', error => {
  console.error(`mongottl: ${error.message}`)
  process.exit(1)
})

// What a terminal sends goes to all processes in its foreground; only what is meant for this one is passed on.
for (const signal of ['SIGINT', 'SIGQUIT', 'SIGHUP', 'SIGTERM']) {
  process.on(signal, () => {
    if (signal === 'SIGTERM' || !process.stdin.isTTY) child.kill(signal)
  })
}

child.on('exit', (code, signal) => {
  // As shells do.
  process.exitCode = signal === null ? code : 128 + constants.signals[signal]
})
