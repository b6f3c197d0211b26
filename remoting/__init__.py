"""RocketMQ's remoting protocol: frames, codes, typed headers and bodies, and a trio client and server.

Everything imported here is sans-IO; ``remoting.client`` and ``remoting.server`` bring trio.
"""
